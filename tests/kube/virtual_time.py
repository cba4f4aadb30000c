"""Time that passes only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools

SETTLE_TURNS = 20
"""Turns of the event loop after which tasks woken by a step have reached their next wait."""


class VirtualTime:
    """A clock and its ``sleep``; ``advance`` wakes sleepers in order, each at its own time."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not woken.done():
                woken.set_result(None)
                await settle()
        self._now = end


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)
