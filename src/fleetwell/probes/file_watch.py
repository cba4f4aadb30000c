"""Wakes the loop when a regular file is written or replaced, so that following one costs nothing while it is still.

inotify has no binding in the standard library; three calls of libc are enough. ``ctypes`` is imported only here, and
this only where a regular file stands in for ``/dev/kmsg``: the device itself wakes its readers.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

REST = 0.01
"""Seconds after a wake in which there is no other: a flood is read in gulps and not line by line."""
_MODIFY, _ATTRIBUTES, _DELETED, _MOVED = 0x2, 0x4, 0x400, 0x800
"""A file that another one is renamed over loses a link, which is a change of its attributes."""


class FileWatch:
    """One watch on the file that has this name now.

    :param on_stir: called in the loop after it was written, replaced or removed; it may be called once too often.
    :raises OSError: the kernel gives no watch (none supported, or none left for this user).
    """

    def __init__(self, path: Path, on_stir: Callable[[], None]) -> None:
        self._on_stir = on_stir
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _error("inotify_init1")
        if libc.inotify_add_watch(self._fd, os.fsencode(path), _MODIFY | _ATTRIBUTES | _DELETED | _MOVED) < 0:
            error = _error("inotify_add_watch")
            os.close(self._fd)
            raise error
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Stop watching."""
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _listen(self) -> None:
        self._rest = None
        self._loop.add_reader(self._fd, self._stirred)

    def _stirred(self) -> None:
        os.read(self._fd, 65536)  # The loop calls only when there is something; what it says does not matter.
        # The kernel makes one event of the writes that come meanwhile.
        self._loop.remove_reader(self._fd)
        self._rest = self._loop.call_later(REST, self._listen)
        self._on_stir()


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
