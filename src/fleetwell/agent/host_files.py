"""Looks at files of the host that others write: without following a link out of its tree, and with bounds on all of it.

The agent may see the host's tree below another folder than ``/``. A link there means what it means to the host:
``/var/lib/containerd -> /mnt/disk0/containerd`` leads to ``mnt/disk0`` of that tree, never into the agent's own.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from itertools import islice
from typing import NamedTuple

LINKS = 40
"""On the way to one file, as many as the kernel follows."""
SETTLED = 1_000_000_000
"""Nanoseconds after which the time of a directory's last change would be another one for another change."""


class Sign(NamedTuple):
    """What changes when a file is written, or another one takes its name."""

    changed: int
    """Nanoseconds since the epoch."""
    size: int
    inode: int


def inside(root: str, path: str) -> str:
    """Give where a path of the host leads, below the host's root; it need not exist.

    :raises OSError: links lead round and round.
    """
    root = root.rstrip("/")
    ahead, at, links = path.split("/")[::-1], "", 0
    while ahead:
        part = ahead.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            at = at.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{root}{at}/{part}")  # noqa: PTH115 (a hundred a second: no objects for them)
        except OSError:
            at = f"{at}/{part}"
            continue
        links += 1
        if links > LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            at = ""
        ahead += target.split("/")[::-1]
    return root + at


def sign(path: str) -> Sign | None:
    """Give the sign of a regular file; None for everything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return Sign(status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def end_of(path: str, limit: int) -> bytes:
    """Read the end of a file, ``limit`` bytes at most; nothing where it is gone, or no regular file."""
    return _read(path, limit, whole=False)


def whole(path: str, limit: int) -> bytes:
    """Read a file; nothing where it has more than ``limit`` bytes, is gone, or is no regular file."""
    return _read(path, limit, whole=True)


def _read(path: str, limit: int, *, whole: bool) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or (whole and status.st_size > limit):
            return b""
        return os.pread(file, limit, max(0, status.st_size - limit))
    except OSError:
        return b""
    finally:
        os.close(file)


class Names:
    """The names in a directory, listed when it has changed."""

    def __init__(self) -> None:
        self.now: tuple[str, ...] = ()
        self._changed = -1

    def read(self, folder: str, limit: int) -> bool:
        """Read ``limit`` of them at most; tell whether they were listed anew.

        :raises OSError: it is not there, or no directory.
        """
        status = os.lstat(folder)
        if status.st_mtime_ns == self._changed:
            return False
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(folder)
        with os.scandir(folder) as entries:
            self.now = tuple(entry.name for entry in islice(entries, limit))
        settled = time.time_ns() - status.st_mtime_ns > SETTLED
        self._changed = status.st_mtime_ns if settled else -1
        return True
