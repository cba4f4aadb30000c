"""Reads what a person hands over: files, standard input, gzip, UTF-16. All of it bounded, since a file may be a bomb.

Text comes as lines or as a whole. A line that is too long is cut and the rest of it dropped: what follows the cut must
not look like a line of its own, or a program could write the kernel's words there.
"""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LINE_LIMIT: Final = 16 * 1024
TEXT_LIMIT: Final = 32 << 20
"""Bytes of one document: a query of 16 GPUs is 300 KB."""
STREAM_LIMIT: Final = 512 << 20
"""Bytes of one log, after decompression."""
MAX_LINES: Final = 4_000_000
"""Lines of one log: more than the largest ring and a year of a quiet journal hold."""
_GZIP: Final = b"\x1f\x8b"
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How PowerShell begins what it redirects into a file."""
STDIN: Final = "-"


class GivenError(Exception):
    """An input could not be read; what was read of it before stays."""


class Given:
    """One input. It can be read once.

    :param path: a path, or ``-`` for standard input.
    """

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == STDIN else path
        self.cut = ""
        """Why what was read is not all of it; empty where it is."""
        self._path = path

    @property
    def saved(self) -> float:
        """Seconds since the epoch of when it was last written; now, for standard input."""
        try:
            return time.time() if self._path == STDIN else Path(self._path).stat().st_mtime
        except OSError:
            return time.time()

    def lines(self) -> Iterator[str]:
        """Give the lines without their ends. Look at ``cut`` afterwards.

        :raises GivenError: it cannot be opened.
        """
        left = STREAM_LIMIT
        with self._open() as stream:
            try:
                for _ in range(MAX_LINES):
                    line = stream.readline(LINE_LIMIT)
                    if not line:
                        return
                    left -= len(line)
                    if left < 0:
                        self.cut = f"only the first {STREAM_LIMIT >> 20} MiB of {self.name} were read"
                        return
                    yield line.decode("utf-8", "replace").rstrip("\r\n").removeprefix("\N{BYTE ORDER MARK}")
                    while line and not line.endswith(b"\n"):
                        line = stream.readline(LINE_LIMIT)
                        left -= len(line)
                        if left < 0:
                            break
                self.cut = f"only the first {MAX_LINES} lines of {self.name} were read"
            except (OSError, EOFError, zlib.error) as error:
                self.cut = f"{self.name} breaks off: {error}"

    def text(self) -> str:
        """Give the whole. Look at ``cut`` afterwards.

        :raises GivenError: it cannot be opened.
        """
        kept = bytearray()
        with self._open() as stream:
            try:
                while chunk := stream.read(min(1 << 20, TEXT_LIMIT + 1 - len(kept))):
                    kept += chunk
                    if len(kept) > TEXT_LIMIT:
                        self.cut = f"only the first {TEXT_LIMIT >> 20} MiB of {self.name} were read"
                        break
            except (OSError, EOFError, zlib.error) as error:
                self.cut = f"{self.name} breaks off: {error}"
        return kept[:TEXT_LIMIT].decode("utf-8-sig", "replace")

    def _open(self) -> BinaryIO:
        try:
            raw = sys.stdin.buffer if self._path == STDIN else Path(self._path).open("rb")  # noqa: SIM115 (whoever reads closes it)
            stream: io.BufferedReader[Any] = io.BufferedReader(_Bytes(raw))
            if _first_two(stream) == _GZIP:
                stream = io.BufferedReader(gzip.GzipFile(fileobj=stream))
            if _first_two(stream) in _UTF16:
                stream = io.BufferedReader(_Utf16(stream))
        except OSError as error:
            raise GivenError(f"{self.name} cannot be read: {error.strerror or error}") from error
        return stream


def _first_two(stream: io.BufferedReader[Any]) -> bytes:
    try:
        return stream.peek(2)[:2]
    except (EOFError, zlib.error):  # What it unpacks is cut or broken: whoever reads on is told.
        return b""


class _Bytes(io.RawIOBase):
    """Reads another stream, so that what was looked at can be read again whatever kind of stream that is."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read what is there, at most as much as fits."""
        view = memoryview(buffer)
        found = self._stream.read(len(view))
        view[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """Close what it reads, but for standard input."""
        if not self.closed and self._stream is not sys.stdin.buffer:
            self._stream.close()
        super().close()


class _Utf16(io.RawIOBase):
    """Reads a stream of UTF-16 as one of UTF-8."""

    def __init__(self, stream: io.BufferedReader[Any]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._waiting = b""

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read what is there, at most as much as fits."""
        view = memoryview(buffer)
        more = True
        while more and not self._waiting:
            found = self._stream.read1(io.DEFAULT_BUFFER_SIZE)
            more = bool(found)
            self._waiting = self._decoder.decode(found, final=not more).encode()
        found, self._waiting = self._waiting[: len(view)], self._waiting[len(view) :]
        view[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """Close what it reads."""
        self._stream.close()
        super().close()
