"""The launcher: one per node, holds the node's seat in the run, and starts and ends the node's workers.

It never waits for the coordinator to do what is safe alone: a failure ends the node's other workers at once, and a
SIGTERM asks its own workers to drain at once, because the ranks agree on the step among themselves. What it must know
from the coordinator is when to start, and whether the run is over.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from .coordinator import Coordinator
from .crew import Crew
from .link import Link
from .protocol import (
    Concluded,
    Downward,
    Draining,
    End,
    Exited,
    Failure,
    Hello,
    History,
    Outcome,
    Ready,
    Reason,
    Refused,
    Start,
    Status,
    Welcome,
    WorkerFailed,
)
from .report import Reports
from .run_record import RunRecord
from .termination import leave_word

if TYPE_CHECKING:
    from .settings import LaunchSettings
    from .worker import Sinks

DRAINED_CODE = 128 + signal.SIGTERM
_LINGER = 5.0
_log = structlog.get_logger()


class Launcher:
    """One node's part of a run; ``run`` returns the process's exit code."""

    def __init__(self, settings: LaunchSettings, sinks: Sinks | None = None) -> None:
        self._settings = settings
        self._sinks = sinks or (sys.stdout.buffer, sys.stderr.buffer)
        self._name = uuid.uuid4().hex
        self._channels = Path(tempfile.mkdtemp(prefix="fleetwell-run-"))
        self._history = History()
        self._crew: Crew | None = None
        self._crew_task: asyncio.Task[None] | None = None
        self._exited: Exited | None = None  # told until the coordinator has concluded the generation
        self._port: socket.socket | None = None
        self._drain_task: asyncio.Task[None] | None = None
        self._draining: Draining | None = None
        self._finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._link: Link | None = None
        self._reports = Reports(settings.run_id)

    async def run(self) -> int:
        """Take the seat, work until the run is over or this node has to leave, and leave nothing behind."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._drain)
        loop.add_signal_handler(signal.SIGINT, self._finish, 128 + signal.SIGINT)
        settings = self._settings
        coordinator: Coordinator | None = None
        serving = asyncio.create_task(self._serve())
        try:
            first: list[asyncio.Future[Any]] = [serving, self._finished]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                serving.cancel()
                return self._finished.result()
            try:
                coordinator, host, port = serving.result()
            except OSError as error:
                _log.error("cannot serve the run; nothing was started", port=settings.port, error=str(error))
                return 1
            self._link = Link(host, port, settings.limits.silence, self)
            work = [asyncio.create_task(self._link.run()), asyncio.create_task(self._report())]
            first = [*work, self._finished]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            await self._leave(work)
            if coordinator is not None:
                await coordinator.close(_LINGER)
            for task in work:
                if not task.cancelled():
                    task.result()  # it never returns by itself: this raises what broke it
            return self._finished.result()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)
            if self._port is not None:
                self._port.close()
            shutil.rmtree(self._channels, ignore_errors=True)

    async def _serve(self) -> tuple[Coordinator | None, str, int]:
        settings = self._settings
        if settings.node:
            return None, settings.host, settings.port
        coordinator = Coordinator(settings, RunRecord(settings.run_dir, settings.run_id))
        return coordinator, "127.0.0.1", await coordinator.open()

    async def _leave(self, work: list[asyncio.Task[None]]) -> None:
        if self._crew is not None:
            self._crew.end("the launcher leaves")
        tasks = [task for task in (self._crew_task, self._drain_task) if task is not None]
        if self._drain_task is not None:
            self._drain_task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reports.leave()
        if self._link is not None:
            await self._link.flush()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._settings.limits.heartbeat)
            self._say_status()

    def _say_status(self) -> None:
        if self._link is not None:
            self._link.say(self._crew.status() if self._crew is not None else Status())

    def _finish(self, code: int) -> None:
        if not self._finished.done():
            self._finished.set_result(code)

    # What the link asks and tells.

    def hello(self) -> Hello:
        """Say who we are and what we remember."""
        running, settings, history = 0, self._settings, self._history
        if self._crew is not None:
            status = self._crew.status()
            running = status.generation
            if status.stepping:
                history = History(running, history.restarts, status.step, status.saved)
        elif self._exited is not None:
            running = self._exited.generation
        return Hello(settings.node, settings.nnodes, settings.nproc, settings.run_id, self._name, running, history)

    def told(self, message: Downward) -> None:
        """Act on the coordinator's word."""
        match message:
            case Welcome():
                self._welcomed()
            case Start():
                self._begin(message)
            case End(generation, why):
                if self._crew is not None and self._crew.generation == generation:
                    self._crew.end(why)
            case Concluded():
                self._conclude(message)
            case Refused(why, again):
                _log.warning("no seat in the run", why=why, again=again)
                if not again:
                    self._finish(1)

    def unreachable(self, seconds: float) -> None:
        """Without a coordinator: end what cannot go on, and give up after the rendezvous limit."""
        limits = self._settings.limits
        if seconds > limits.silence and self._crew is not None and self._draining is None:
            self._crew.end(f"no coordinator for {seconds:.0f} s")
        if seconds > limits.rendezvous:
            endpoint = f"{self._settings.host}:{self._settings.port}"
            _log.error("no coordinator: giving up", endpoint=endpoint, limit_s=limits.rendezvous)
            self._finish(1)

    def _welcomed(self) -> None:
        if self._link is None:
            return
        if self._draining is not None:
            self._link.say(self._draining)
        if self._exited is not None:
            self._link.say(self._exited)
        elif self._crew is None and self._draining is None:
            self._link.say(self._ready())

    def _ready(self) -> Ready:
        """Offer the seat; the port for rank 0's store is held until the workers start."""
        settings = self._settings
        if self._port is None:
            self._port = socket.socket()
            self._port.bind(("", 0))
        port: int = self._port.getsockname()[1]
        return Ready(settings.local_address or settings.host, port)

    # Generations.

    def _begin(self, start: Start) -> None:
        self._history = History(start.generation, start.restarts, self._history.last_step, self._history.saved_step)
        if self._draining is not None or self._crew is not None:
            if self._link is not None and self._crew is None:
                self._link.say(Exited(start.generation, Outcome.ENDED, 0, 0))
            return
        if self._port is not None:
            self._port.close()
            self._port = None
        world = sum(start.nprocs)
        _log.info("starting workers", generation=start.generation, workers=self._settings.nproc, world=world)
        crew = Crew(self._settings, start, self._channels, self._sinks, self._failed)
        self._crew = crew
        self._crew_task = asyncio.create_task(self._tend(crew))
        self._crew_task.add_done_callback(self._tended)

    async def _tend(self, crew: Crew) -> None:
        exited = await crew.run()
        if exited.last_step:
            self._history = History(exited.generation, self._history.restarts, exited.last_step, exited.saved_step)
        self._crew, self._exited = None, exited
        _log.info("workers gone", generation=exited.generation, outcome=exited.outcome, step=exited.last_step)
        if self._link is not None:
            self._link.say(exited)

    def _tended(self, task: asyncio.Task[None]) -> None:
        broken = None if task.cancelled() else task.exception()
        if broken is not None and not self._finished.done():
            self._finished.set_exception(broken)

    def _failed(self, failure: Failure) -> None:
        if self._crew is None:
            return
        self._say_status()
        if self._link is not None:
            self._link.say(WorkerFailed(self._crew.generation, failure))
        self._crew.end(f"rank {failure.rank} died")
        self._reports.about(failure)

    def _conclude(self, concluded: Concluded) -> None:
        if self._exited is None and concluded.finish is None:
            return  # told twice, after a broken connection
        self._exited = None
        self._history = History(concluded.generation, concluded.restarts, concluded.last_step, concluded.saved_step)
        if concluded.reason in {Reason.FAILURE, Reason.LAUNCHER_LOST, Reason.NEVER_FORMED}:
            _log.error("generation ended", generation=concluded.generation, reason=concluded.reason, why=concluded.why)
        if concluded.finish is not None:
            if concluded.finish:
                _log.error("the run failed: no restarts left", restarts=concluded.restarts, why=concluded.why)
                leave_word(concluded)
            self._finish(concluded.finish)
        elif self._draining is not None:
            self._finish(DRAINED_CODE)
        elif self._link is not None:
            self._link.say(self._ready())

    # Leaving.

    def _drain(self) -> None:
        if self._draining is not None:
            return
        limits = self._settings.limits
        can_save = self._crew is not None and self._crew.ask_drain()
        self._draining = Draining(limits.grace, can_save)
        _log.warning("SIGTERM: this node drains", can_save=can_save, grace_s=limits.grace)
        if self._link is not None:
            self._link.say(self._draining)
        if self._crew is None and self._exited is None:
            self._finish(DRAINED_CODE)
            return
        if self._crew is not None and not can_save:
            self._crew.end("drained before anything steps: nothing to save")
        self._drain_task = asyncio.create_task(self._keep_grace())

    async def _keep_grace(self) -> None:
        """Let the workers save for as long as the grace allows, and be gone when it is over."""
        limits = self._settings.limits
        leaving = time.monotonic() + limits.grace
        reserve = min(limits.stop + 1.0, limits.grace / 2)
        await asyncio.sleep(limits.grace - reserve)
        if self._crew is not None:
            _log.error("the grace runs out: ending the workers without the save", grace_s=limits.grace)
            self._crew.end("the grace runs out", stop=reserve / 2)
        await asyncio.sleep(max(0.0, leaving - time.monotonic()))
        self._finish(DRAINED_CODE)
