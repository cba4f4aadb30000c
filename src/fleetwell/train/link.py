"""A launcher's connection to the coordinator: kept, and made again with jittered back-off when it breaks.

The coordinator's pod may be replaced at any time; nothing of this launcher's state depends on the connection, which is
why what has to be told is told again after each welcome (the launcher's business), and ``say`` on a broken one is lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Protocol

import structlog

from .protocol import MAX_LINE, Downward, ProtocolError, Refused, decode_downward, encode

if TYPE_CHECKING:
    from .protocol import Hello, Upward

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0
_log = structlog.get_logger()


class Listener(Protocol):
    """The launcher, as its link sees it."""

    def hello(self) -> Hello:
        """Say who we are, for a new connection."""

    def told(self, message: Downward) -> None:
        """Hear the coordinator."""

    def unreachable(self, seconds: float) -> None:
        """Hear for how long there has been no coordinator."""


class Link:
    """Connects to ``host:port`` until it is cancelled."""

    def __init__(self, host: str, port: int, silence: float, listener: Listener) -> None:
        self._host = host
        self._port = port
        self._silence = silence
        self._listener = listener
        self._writer: asyncio.StreamWriter | None = None

    def say(self, message: Upward) -> None:
        """Tell the coordinator, if it is there."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(message))

    async def flush(self) -> None:
        """Wait, but not for long, until what was said has left."""
        if self._writer is not None:
            try:
                await asyncio.wait_for(self._writer.drain(), 1.0)
            except (ConnectionError, TimeoutError):
                return

    async def run(self) -> None:
        """Keep the connection."""
        heard = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            try:
                if await self._converse():
                    heard, pause = time.monotonic(), _FIRST_PAUSE
            except (OSError, ProtocolError, TimeoutError) as error:
                _log.debug("no coordinator", endpoint=f"{self._host}:{self._port}", error=str(error))
            self._listener.unreachable(time.monotonic() - heard)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
            pause = min(pause * 1.7, _LONGEST_PAUSE)

    async def _converse(self) -> bool:
        """Hold one conversation to its end; say whether the coordinator answered at all."""
        opened = asyncio.open_connection(self._host, self._port, limit=MAX_LINE)
        reader, writer = await asyncio.wait_for(opened, self._silence)
        welcomed = False
        try:
            writer.write(encode(self._listener.hello()))
            while True:
                try:
                    line = await asyncio.wait_for(reader.readuntil(b"\n"), self._silence)
                except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, TimeoutError):
                    return welcomed
                message = decode_downward(line)
                if isinstance(message, Refused):
                    self._listener.told(message)
                    return False
                self._writer, welcomed = writer, True
                self._listener.told(message)
        finally:
            self._writer = None
            writer.close()
