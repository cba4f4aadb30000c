"""The workers of one generation on one node: started together, watched, and ended together within a bound."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

import structlog

from .channel import Channel, WorkerPhase
from .protocol import Exited, Failure, Outcome, Status
from .worker import Sinks, Worker
from .worker_env import worker_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .protocol import Start
    from .settings import LaunchSettings

_LEAVING = 2.0  # seconds for interpreters to end once all ranks have saved: torch alone takes 1.5
_LOOK = 0.1  # seconds between looks at deadlines
_log = structlog.get_logger()


class Crew:
    """Runs one generation here. ``on_failure`` hears of each worker that dies by itself, when it dies."""

    def __init__(
        self,
        settings: LaunchSettings,
        start: Start,
        channels: Path,
        sinks: Sinks,
        on_failure: Callable[[Failure], None],
    ) -> None:
        self.generation = start.generation
        self._settings = settings
        self._start = start
        self._sinks = sinks
        self._on_failure = on_failure
        self._paths = [channels / f"{start.generation}-{local}" for local in range(settings.nproc)]
        self._channels = [Channel.create(path) for path in self._paths]
        self._workers: dict[asyncio.Task[int], Worker] = {}
        self._failed = False
        self._left: set[int] = set()
        self._ended: float | None = None
        self._killed: float | None = None
        self._stop = settings.limits.stop
        self._wake = asyncio.Event()

    def status(self) -> Status:
        """Return how far the workers are; it stays readable after they died."""
        begun = [channel for channel in self._channels if channel.phase >= WorkerPhase.STEPPING]
        return Status(
            generation=self.generation,
            stepping=bool(begun),
            step=max((channel.step for channel in begun), default=0),
            saved=max((channel.saved for channel in begun), default=0),
            resumed=max((channel.resumed for channel in begun), default=0),
        )

    def ask_drain(self) -> bool:
        """Ask the workers to agree on a step, save it and leave; False when nothing steps here yet."""
        if self._ended is not None or not self.status().stepping:
            return False
        for channel in self._channels:
            channel.ask_drain()
        return True

    def end(self, why: str, *, stop: float | None = None) -> None:
        """End all workers: SIGTERM now, SIGKILL after ``stop`` seconds, and no wait without a bound after that."""
        if self._ended is None:
            _log.info("ending the workers", generation=self.generation, why=why)
            self._ended = time.monotonic()
            self._signal(signal.SIGTERM)
        if stop is not None:
            self._stop = min(self._stop, stop)
        self._wake.set()

    async def run(self) -> Exited:
        """Start the workers and return when none of them runs any more, or can be ended."""
        await self._begin()
        drained_at: float | None = None
        while self._workers:
            await self._look()
            for task in [task for task in self._workers if task.done()]:
                self._reap(self._workers.pop(task))
            now = time.monotonic()
            if self._ended is None and all(c.phase is WorkerPhase.DRAINED for c in self._channels):
                drained_at = drained_at or now
                if now - drained_at > _LEAVING:
                    self.end("all ranks saved, and some do not exit")
            if self._ended is not None and not self._escalate(now):
                break
        return await self._conclude()

    async def _begin(self) -> None:
        settings = self._settings
        for local, channel in enumerate(self._channels):
            rank = sum(self._start.nprocs[: settings.node]) + local
            environment = worker_environment(os.environ, settings, self._start, local, self._paths[local])
            try:
                worker = await Worker.start(rank, settings.command, environment, channel, self._sinks)
            except OSError as error:  # no memory, no processes, no file descriptors left
                self._failed = True
                self._on_failure(Failure(settings.node, rank, 0, 1, f"could not be started: {error}"))
                self.end(f"rank {rank} could not be started")
                return
            self._workers[asyncio.create_task(worker.wait())] = worker

    async def _look(self) -> None:
        wake = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait([*self._workers, wake], timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._wake.clear()
            wake.cancel()

    def _reap(self, worker: Worker) -> None:
        if worker.channel.phase is WorkerPhase.DRAINED:
            self._left.add(worker.rank)  # it saved with all the others; how its interpreter ended does not matter
            return
        if worker.code == 0 or self._ended is not None:
            return
        failure = worker.failure(self._settings.node)
        self._failed = True
        _log.error("a worker died", generation=self.generation, what=failure.sentence())
        self._on_failure(failure)

    def _escalate(self, now: float) -> bool:
        """Kill what ignored SIGTERM; False when what is left has to be given up."""
        if self._ended is not None and self._killed is None and now - self._ended >= self._stop:
            self._killed = now
            self._signal(signal.SIGKILL)
        return self._killed is None or now - self._killed < self._settings.limits.kill

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            worker.signal(number)

    async def _conclude(self) -> Exited:
        abandoned = tuple(worker.pid for worker in self._workers.values())
        if abandoned:
            _log.error("workers survive SIGKILL and are given up; their node needs a look", pids=abandoned)
        for task, worker in self._workers.items():
            task.cancel()
            worker.release()
        await asyncio.gather(*self._workers, return_exceptions=True)
        status = self.status()
        for path, channel in zip(self._paths, self._channels, strict=True):
            channel.close()
            path.unlink(missing_ok=True)
        return Exited(self.generation, self._outcome(), status.step, status.saved, abandoned)

    def _outcome(self) -> Outcome:
        if self._failed:
            return Outcome.FAILED
        if len(self._left) == len(self._channels):
            return Outcome.DRAINED
        if self._ended is not None:
            return Outcome.ENDED
        return Outcome.DRAINED if self._left else Outcome.DONE
