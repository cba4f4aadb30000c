"""A worker's stdout or stderr: passed on line by line with the rank before it, and its end kept for the failure."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import BinaryIO

_LONGEST = 16 * 1024  # a line is passed on in pieces of this size: progress bars never end one
_KEPT = 50
_ADVICE = 12  # lines that may follow an exception; one that stands further up was survived
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt)(?::|$)")
_TORCH_PREFIX = re.compile(r"^\[rank\d+\]:\s*")  # torch's excepthook says the rank too


class OutputPump(asyncio.Protocol):
    """Reads one pipe of one worker."""

    def __init__(self, rank: int, sink: BinaryIO) -> None:
        self.tail: deque[str] = deque(maxlen=_KEPT)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._prefix = f"[rank {rank}] ".encode()
        self._sink = sink
        self._partial = bytearray()

    def data_received(self, data: bytes) -> None:
        """Pass on the lines that are complete."""
        self._partial += data
        *lines, rest = bytes(self._partial).split(b"\n")
        while len(rest) > _LONGEST:
            lines.append(rest[:_LONGEST])
            rest = rest[_LONGEST:]
        self._partial = bytearray(rest)
        self._emit(lines)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the pipe's end, whatever its reason
        """Pass on what is left."""
        if self._partial:
            self._emit([bytes(self._partial)])
            self._partial.clear()
        if not self.closed.done():
            self.closed.set_result(None)

    @property
    def last_words(self) -> str:
        """What the worker said of its end, cut to what fits a message.

        That is the last line that names an exception, since libraries print advice below it (CUDA does); where none
        does, the last line that is not blank.
        """
        lines = [_TORCH_PREFIX.sub("", line.strip()) for line in reversed(self.tail) if line.strip()]
        telling = next((line for line in lines[:_ADVICE] if _EXCEPTION.match(line)), lines[0] if lines else "")
        return telling[:500]

    def _emit(self, lines: list[bytes]) -> None:
        if not lines:
            return
        self.tail.extend(line[:_LONGEST].decode(errors="replace") for line in lines[-_KEPT:])
        try:
            self._sink.write(b"".join(self._prefix + line.rstrip(b"\r") + b"\n" for line in lines))
            self._sink.flush()
        except (OSError, ValueError):
            return  # nobody reads our output any more; the training goes on
