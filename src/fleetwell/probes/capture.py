"""Reads a child's pipe as it fills, keeps a bounded part of it, and never waits for its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_CHUNK = 65536


class Capture:
    """The reading end of one pipe.

    :param fd: the reading end, non-blocking; this object closes it.
    :param keep: how many of the last bytes are kept.
    :param limit: after how many bytes ``on_limit`` is called and reading stops.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, *, keep: int, limit: int) -> None:
        self.exceeded = False
        self.on_limit: Callable[[], None] | None = None
        self._loop = loop
        self._fd: int | None = fd
        self._keep = keep
        self._limit = limit
        self._read = 0
        self._kept = bytearray()
        loop.add_reader(fd, self._fill)

    @classmethod
    def pipe(cls, loop: asyncio.AbstractEventLoop, *, keep: int, limit: int) -> tuple[Capture, int]:
        """Make a pipe; give its reader, and the writing end, which the caller closes."""
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(read, False)
        return cls(loop, read, keep=keep, limit=limit), write

    def tail(self) -> bytes:
        """Give what was kept."""
        return bytes(self._kept)

    def drain(self) -> None:
        """Read what is in the pipe now."""
        while self._fd is not None and self._fill():
            pass

    def close(self) -> None:
        """Stop reading; what was kept stays."""
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _fill(self) -> bool:
        """Read once; say whether there may be more."""
        if self._fd is None:
            return False
        try:
            chunk = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        self._read += len(chunk)
        self._kept += chunk
        del self._kept[: -self._keep]
        if self._read > self._limit:
            self.exceeded = True
            self.close()
            if self.on_limit is not None:
                self.on_limit()
        return self._fd is not None
