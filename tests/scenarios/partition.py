"""A way to the API server that can be cut: connections stay open and nothing comes through, as behind a dead link.

What was sent before the cut and not delivered arrives when it is healed, as it does after a real network's hiccup.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Link:
    """Carries connections to one port of this machine, until it is cut."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._whole = asyncio.Event()
        self._whole.set()
        self._carrying: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """From now on nothing comes through, in either direction, on old connections and new ones."""
        self._whole.clear()

    def heal(self) -> None:
        """Let through what was held up, late, and everything after it."""
        self._whole.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, both ways."""
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            await self._whole.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(self._pump(reader, far_writer))
                    ways.create_task(self._pump(far_reader, writer))
            finally:
                far_writer.close()
        except* (OSError, asyncio.CancelledError):
            pass  # one of the two ends has gone, or the link is taken away: so has this connection
        finally:
            writer.close()
            self._carrying.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def take_away(self) -> None:
        """End every connection."""
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)


@asynccontextmanager
async def link_to(target: int) -> AsyncIterator[Link]:
    """Open a link to a port."""
    link = Link(target)
    server = await asyncio.start_server(link.carry, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        await link.take_away()
