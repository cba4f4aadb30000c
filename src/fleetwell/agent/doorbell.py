"""How the controller gets this agent's attention: the name of one operation, in the agent's own NodeHealth.

So that ten thousand agents do not all watch every operation of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from fleetwell.agent.operations import Operations
from fleetwell.kube.backoff import Backoff
from fleetwell.kube.errors import KubeError

log = structlog.get_logger(__name__)


class Doorbell:
    """The name of the operation that was last rung for; a newer one replaces one that was not looked at yet."""

    def __init__(self) -> None:
        self._name = ""
        self._rung = asyncio.Event()

    def ring(self, name: str) -> None:
        """Ask that an operation be looked at."""
        if name:
            self._name = name
            self._rung.set()

    async def answered(self) -> str:
        """Wait for the next ring."""
        await self._rung.wait()
        self._rung.clear()
        return self._name


async def answer(doorbell: Doorbell, operations: Operations, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Carry out what is rung for, one after the other, until cancelled."""
    backoff = Backoff(0.5, 15.0)
    while True:
        name = await doorbell.answered()
        try:
            await operations.handle(name)
        except KubeError as error:
            pause = backoff.after_failure()
            log.warning("operation not begun; asked again", operation=name, why=str(error), retry_in=pause)
            await sleep(pause)
            doorbell.ring(name)
        else:
            backoff.reset()
