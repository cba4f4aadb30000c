"""The agent's own record of the operations that it began, on the node's disk.

It is written and flushed to the disk *before* anything is done, so an agent that comes back, after a crash or after
the very reboot that it carried out, knows what it must not do again. Lines are only ever added; each bears a checksum,
since the last one may have been cut off by a loss of power.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec
import structlog

from fleetwell.api.node_operation import NodeOperationStatus, OperationKind

log = structlog.get_logger(__name__)

COMPACT_BYTES = 256 * 1024
COMPACT_KEEP = 64


class Began(msgspec.Struct, frozen=True, kw_only=True, tag="began"):
    """An operation was about to be carried out."""

    operation_id: str
    name: str
    kind: OperationKind
    boot_id: str
    at: float


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """It came to an end, with this to report."""

    operation_id: str
    status: NodeOperationStatus


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the record holds of one operation."""

    began: Began
    result: NodeOperationStatus | None = None


_DECODER = msgspec.json.Decoder(Began | Ended)


class OperationRecord:
    """The record file.

    :param path: where it is; its folder must be on a disk that survives a reboot.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        self._load()

    def get(self, operation_id: str) -> Entry | None:
        """Tell what is on record of an operation; None when it was never begun here."""
        return self._entries.get(operation_id)

    def begin(self, began: Began) -> None:
        """Put on disk that an operation is about to be carried out.

        :raises OSError: it is not certain that it is on disk; the operation must not be carried out.
        """
        self._append(began)
        self._entries[began.operation_id] = Entry(began=began)

    def end(self, operation_id: str, status: NodeOperationStatus) -> None:
        """Put an operation's result on disk. Where that fails it is kept in memory: it is reported all the same."""
        entry = self._entries[operation_id]
        self._entries[operation_id] = Entry(began=entry.began, result=status)
        try:
            self._append(Ended(operation_id=operation_id, status=status))
        except OSError as error:
            log.warning("an operation's result could not be recorded", operation=operation_id, why=str(error))

    def _append(self, line: Began | Ended) -> None:
        is_new = not self._path.exists()
        with self._path.open("ab") as file:
            # The one before may have been cut off and have no newline: then this one could not be read.
            file.write((b"\n" if file.tell() else b"") + _encode(line))
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            _sync_folder(self._path.parent)

    def _load(self) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        for number, line in enumerate(content.splitlines(), start=1):
            read = _decode(line)
            match read:
                case Began():
                    self._entries[read.operation_id] = Entry(began=read)
                case Ended() if read.operation_id in self._entries:
                    began = self._entries[read.operation_id].began
                    self._entries[read.operation_id] = Entry(began=began, result=read.status)
                case _ if line:
                    log.warning("a line of the operation record is damaged", path=str(self._path), line=number)
        if len(content) > COMPACT_BYTES:
            self._compact()

    def _compact(self) -> None:
        """Write the newest entries into a new file; if that fails the old one stays."""
        kept = list(self._entries.values())[-COMPACT_KEEP:]
        new = self._path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                for entry in kept:
                    file.write(_encode(entry.began))
                    if entry.result is not None:
                        file.write(_encode(Ended(operation_id=entry.began.operation_id, status=entry.result)))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            log.warning("the operation record could not be shortened", path=str(self._path), why=str(error))


def _encode(line: Began | Ended) -> bytes:
    body = msgspec.json.encode(line)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _decode(line: bytes) -> Began | Ended | None:
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        return None
    try:
        return _DECODER.decode(body)
    except msgspec.DecodeError:
        return None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
