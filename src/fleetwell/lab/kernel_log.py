"""A virtual node's ``/dev/kmsg``: an append-only regular file in the kernel's record format.

A regular file and not a FIFO, because the device keeps the history of the boot for every reader that comes later, has
any number of readers, and never makes the kernel wait for one; a FIFO does none of that. What differs from the device:
one read returns many records, the end of the file is an empty read instead of a wait (a reader polls), and nothing is
ever overwritten. A reboot puts a *new* file in its place (another inode), so that a reader that was left over from the
boot before sees its log end, as it would. A last line without its newline is still being written.
"""

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

_HEAD = struct.Struct("<Qd")  # next sequence number, epoch seconds of the boot
_LAST_PRINTABLE = 0x7E


class Facility(IntEnum):
    """Who wrote a record: the kernel itself, or user space through /dev/kmsg (which can never be 0)."""

    KERNEL = 0
    USER = 1
    DAEMON = 3


class Level(IntEnum):
    """Syslog levels."""

    CRITICAL = 2
    ERROR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6


@dataclass(frozen=True)
class Line:
    """One record before it has a number and a time; ``tags`` become its continuation lines."""

    text: str
    level: Level = Level.ERROR
    facility: Facility = Facility.KERNEL
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class KernelLog:
    """Writer of one node's kernel log; any number of processes may write at once."""

    def __init__(self, path: Path, head: Path) -> None:
        self.path = path
        self._head = head  # numbering, kept beside the log so that every writer continues it

    def restart(self, booted_at: float) -> None:
        """Begin a boot: an empty log under the same name, numbered from 0."""
        self._head.parent.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as head:
            new = self.path.with_name(f".{self.path.name}.new")
            new.write_bytes(b"")
            new.replace(self.path)
            os.pwrite(head, _HEAD.pack(0, booted_at), 0)

    def write(self, lines: Iterable[Line], now: float) -> None:
        """Append records, all stamped with ``now`` (epoch seconds)."""
        with self._locked() as head:
            sequence, booted_at = _HEAD.unpack(os.pread(head, _HEAD.size, 0))
            microseconds = max(0, int((now - booted_at) * 1_000_000))
            log = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                for line in lines:
                    # One write a record: a reader sees all of it or none of it.
                    os.write(log, record(line, sequence, microseconds))
                    sequence += 1
            finally:
                os.close(log)
                os.pwrite(head, _HEAD.pack(sequence, booted_at), 0)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        head = os.open(self._head, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(head, fcntl.LOCK_EX)
            yield head
        finally:
            os.close(head)


def record(line: Line, sequence: int, microseconds: int) -> bytes:
    r"""Format one record as the kernel does, control characters and backslashes as ``\xNN``."""
    priority = line.facility << 3 | line.level
    text = f"{priority},{sequence},{microseconds},-;{_escaped(line.text)}\n"
    tags = "".join(f" {key}={_escaped(value)}\n" for key, value in line.tags.items())
    return f"{text}{tags}".encode("ascii")


def _escaped(text: str) -> str:
    return "".join(
        chr(byte) if 0x20 <= byte <= _LAST_PRINTABLE and byte != ord("\\") else f"\\x{byte:02x}"
        for byte in text.encode("utf-8", errors="surrogateescape")
    )
