"""Follows ``/dev/kmsg`` from what the ring still holds: every record, in order, as soon as it is there.

Reading the ring cannot hang, so this runs in the agent's own process. It also follows a regular file in the same form,
which is what a virtual node has: many records come by one read then, and a reboot puts another file in its place.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from fleetwell.probes.file_watch import FileWatch

log = structlog.get_logger(__name__)

RECORD_LIMIT = 16 * 1024
"""Bytes for one read of the device; the kernel's own limit for a record with its properties is 8 KiB."""
BATCH = 4096
"""Records of the device between two turns of the loop: a flood must not keep conditions from being published."""
CHUNK = 256 * 1024
BUSY = 16
"""Records of a batch from which on the log is busy."""
REST = 0.02
"""Seconds until a busy log is read again once all of it was: a batch costs as much as a hundred records."""
POLL_INTERVAL = 0.05
"""Seconds between looks at a regular file where the kernel gives no watch on it."""
WATCHED_INTERVAL = 5.0
"""The same where it does: only in case that a filesystem keeps a change to itself."""
REOPEN_INTERVAL = 5.0


class KernelLogTail:
    """Gives the records of one kernel log to ``on_records``, a bounded batch at a time.

    :param path: the device, or a regular file in its form.
    :param on_records: gets each batch, in the loop; must not block.
    """

    def __init__(
        self, path: Path, on_records: Callable[[list[bytes]], None], *, poll_interval: float = POLL_INTERVAL
    ) -> None:
        self.failure = f"{path} was not opened yet"
        """Why nothing is read; empty while it is."""
        self.caught_up = asyncio.Event()
        """All that was there at the start has been read."""
        self._path = path
        self._on_records = on_records
        self._poll_interval = poll_interval
        self._fd: int | None = None
        self._inode = 0
        self._held = b""
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._rests = False
        """A busy log is left alone for a moment."""
        self._watch: FileWatch | None = None

    def start(self) -> None:
        """Begin to follow, from the oldest record that is still there."""
        loop = asyncio.get_running_loop()
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if self.failure != str(error):
                log.warning("the kernel log cannot be read; it is tried again", path=str(self._path), why=str(error))
            self.failure = str(error)
            self._timer = loop.call_later(REOPEN_INTERVAL, self.start)
            return
        self.failure = ""
        self._held = b""
        status = os.fstat(self._fd)
        self._inode = status.st_ino
        if stat.S_ISCHR(status.st_mode):
            self._follow_device()
            self._timer = loop.call_later(self._poll_interval, self.caught_up.set)
        else:
            self._watch = self._watched()
            self._read_file()

    def close(self) -> None:
        """Stop following."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _follow_device(self) -> None:
        assert self._fd is not None  # noqa: S101 (the timer is cancelled before the descriptor is closed)
        asyncio.get_running_loop().add_reader(self._fd, self._read_device)

    def _read_device(self) -> None:
        """Read one record a time, as the device gives them; what is left makes the loop call again."""
        assert self._fd is not None  # noqa: S101 (the reader is removed before the descriptor is closed)
        records = []
        for _ in range(BATCH):
            try:
                records.append(os.read(self._fd, RECORD_LIMIT))
            except BlockingIOError:
                self.caught_up.set()
                if len(records) >= BUSY:
                    loop = asyncio.get_running_loop()
                    loop.remove_reader(self._fd)
                    self._timer = loop.call_later(REST, self._follow_device)
                break
            except BrokenPipeError:
                continue  # Records were overwritten before they were read: the sequence numbers will show it.
            except OSError as error:
                self._lose(error)
                break
        if records:
            self._on_records(records)

    def _lose(self, error: OSError) -> None:
        log.warning("the kernel log cannot be read any more; it is opened again", path=str(self._path), why=str(error))
        self.close()
        self.failure = str(error)
        self._timer = asyncio.get_running_loop().call_later(REOPEN_INTERVAL, self.start)

    def _read_file(self) -> None:
        assert self._fd is not None  # noqa: S101 (the timer is cancelled before the descriptor is closed)
        loop = asyncio.get_running_loop()
        self._rests = False
        chunk = os.read(self._fd, CHUNK)
        records, self._held = split(self._held + chunk, whole=len(chunk) < CHUNK)
        if records:
            self._on_records(records)
        if len(chunk) == CHUNK:
            self._timer = loop.call_soon(self._read_file)
            return
        self.caught_up.set()
        if not chunk and self._was_replaced():
            self.close()
            self._timer = loop.call_soon(self.start)
            return
        self._rests = len(records) >= BUSY
        pause = REST if self._rests else WATCHED_INTERVAL if self._watch else self._poll_interval
        self._timer = loop.call_later(pause, self._read_file)

    def _watched(self) -> FileWatch | None:
        """Have the kernel say when the file changes. It is asked before the first read, so that nothing is missed."""
        from fleetwell.probes.file_watch import FileWatch  # noqa: PLC0415 (costs memory; a real agent reads a device)

        try:
            return FileWatch(self._path, self._stirred)
        except OSError as error:
            log.info("the kernel log's file is polled", path=str(self._path), why=str(error))
            return None

    def _stirred(self) -> None:
        if self._rests:
            return  # It is read again in a moment.
        if self._timer is not None:
            self._timer.cancel()
        self._read_file()

    def _was_replaced(self) -> bool:
        assert self._fd is not None  # noqa: S101 (as above)
        try:
            now = self._path.stat()
        except OSError:
            return False  # It is between two boots.
        return now.st_ino != self._inode or now.st_size < os.lseek(self._fd, 0, os.SEEK_CUR)


def split(text: bytes, *, whole: bool) -> tuple[list[bytes], bytes]:
    """Cut a file's content into records; give them, and the rest that is not complete yet.

    :param whole: nothing more is there at this moment, so the last record has all its properties. Otherwise it is kept,
        since more of its indented lines may follow.
    """
    end = text.rfind(b"\n") + 1
    records, rest = text[:end].splitlines(keepends=True), text[end:]
    if b"\n " in text:
        records = _with_properties(records)
    if not whole and records:
        rest = records.pop() + rest
    if len(rest) > CHUNK:
        rest = b""  # No record is that long: whatever this is, it must not pile up.
    return records, rest


def _with_properties(lines: list[bytes]) -> list[bytes]:
    """Put the indented lines to the record before them."""
    records: list[list[bytes]] = []
    for line in lines:
        if line.startswith(b" ") and records:
            records[-1].append(line)
        else:
            records.append([line])
    return [b"".join(record) for record in records]
