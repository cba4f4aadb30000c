"""The controller's process: follow the fleet, wait for leadership, lead, and end when it is lost.

A process that loses the lease ends rather than stands by: whatever it still had in hand is gone with it, and the fence
has kept its requests from being sent since.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from fleetwell import __version__
from fleetwell.control.effects.reach import Reach
from fleetwell.control.freshness import Freshness
from fleetwell.control.housekeeping import Housekeeping
from fleetwell.control.loop import Loop
from fleetwell.control.observe import Observer
from fleetwell.control.picture import Picture
from fleetwell.control.settings import MANAGER, Clock, Settings
from fleetwell.kube.client import Client
from fleetwell.kube.config import ConnectionConfig, load
from fleetwell.kube.lease import LeaderLease
from fleetwell.kube.recorder import EventRecorder

log = structlog.get_logger(__name__)

LEASE = "fleetwell-controller"
LOST = 3
"""Exit code when leadership was lost."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the process is started. Times in seconds."""

    identity: str
    kubeconfig: Path | None = None
    context: str | None = None
    settings: Settings = field(default_factory=Settings)
    clock: Clock = field(default_factory=Clock)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    @property
    def request_timeout(self) -> float:
        """What the fence lets through at any moment of a term in which renewals succeed."""
        return max(0.2, (self.renew_deadline - self.retry_period) / 2)


async def serve(options: Options) -> int:
    """Run until SIGTERM or SIGINT (0), or until leadership is lost (:data:`LOST`).

    :raises KubeError: the way to the API server cannot be made out, or its incidents cannot be claimed.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        return await lead(load(options.kubeconfig, options.context), options, stop)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def lead(config: ConnectionConfig, options: Options, stop: asyncio.Event) -> int:
    """Follow the fleet, and lead it once the lease is ours; give the lease back when ``stop`` is set."""
    settings, clock = options.settings, options.clock
    agent = f"fleetwell-controller/{__version__}"
    picture = Picture(Freshness(settings.agent_stale_after, clock.monotonic))
    changed = asyncio.Event()
    async with (
        Client(config, user_agent=agent, timeout=30.0) as reading,
        # Every slot may be taken by effects on an API server that is slow: the lease must not wait behind them.
        Client(config, user_agent=agent, timeout=options.request_timeout, connections=4) as leasing,
        Client(config, user_agent=agent, timeout=options.request_timeout, connections=settings.workers) as acting,
        Observer(reading, picture, namespace=settings.namespace, changed=changed.set) as observer,
        EventRecorder(reading, component=MANAGER, instance=options.identity) as events,
    ):
        lease = LeaderLease(
            leasing,
            name=LEASE,
            namespace=settings.namespace,
            identity=options.identity,
            duration=options.lease_duration,
            renew_deadline=options.renew_deadline,
            retry=options.retry_period,
        )
        log.info("waiting for leadership", identity=options.identity, namespace=settings.namespace)
        async with contextlib.AsyncExitStack() as term:
            if not await _unless(stop, term.enter_async_context(lease)):
                return 0
            reach = Reach(
                client=acting.fenced_by(lease.fence),
                events=events,
                clock=clock,
                settings=settings,
                epoch=lease.epoch,
                health_version=picture.health_version,
            )
            async with _leading(
                Loop(reach, picture, changed), Housekeeping(reach, picture), observer, settings
            ) as ends:
                await _first(stop.wait(), lease.lost.wait(), ends)
            if lease.lost.is_set():
                log.error("leadership lost: ending", identity=options.identity, epoch=lease.epoch)
                return LOST
            log.info("stopping: the lease is given back", identity=options.identity)
    return 0


@asynccontextmanager
async def _leading(
    loop: Loop, chores: Housekeeping, observer: Observer, settings: Settings
) -> AsyncIterator[asyncio.Task[None]]:
    """Decide and act for as long as the block lasts; gives the task, which ends early only by an error."""

    async def term() -> None:
        await observer.synced()
        await loop.intents.claim()
        await chores.policies.check_tolerations()
        log.info(
            "deciding", nodes=len(loop.picture.nodes), incidents=sum(1 for _ in loop.picture.book.open_incidents())
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run(), name="loop")
            often = min(5.0, settings.agent_stale_after / 4)
            group.create_task(_every(often, chores.watch, loop.changed.set), name="watch")
            group.create_task(_every(settings.chores_interval, chores.round, loop.changed.set), name="chores")

    task = asyncio.create_task(term(), name="term")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await loop.dispatcher.stop()
    if task.done() and not task.cancelled():
        task.result()


async def _every(seconds: float, chore: Callable[[], Awaitable[None]], then: Callable[[], None]) -> None:
    while True:
        await chore()
        then()
        await asyncio.sleep(seconds)


async def _first(*waits: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> None:
    """Wait for the first of several."""
    tasks = [it if isinstance(it, asyncio.Task) else asyncio.create_task(it) for it in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, given in zip(tasks, waits, strict=True):
            if task is not given:
                task.cancel()


async def _unless(stop: asyncio.Event, doing: Coroutine[Any, Any, Any]) -> bool:
    """Do something, unless we are told to stop meanwhile; False when we were."""
    task = asyncio.create_task(doing)
    await _first(stop.wait(), task)
    if task.done():
        task.result()
        return True
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return False
