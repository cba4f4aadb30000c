"""Lets each probe look when it is due or asked for, and turns what its child gave into triage's words."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager

import structlog

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.settings import Timing
from fleetwell.health.stimuli import ProbeBlind, ProbeFailed
from fleetwell.health.vocabulary import FaultName
from fleetwell.probes import launch, protocol
from fleetwell.probes.child import Answer, Crashed, Hung, Nonsense, Outcome, Outstanding, SupervisedChild

log = structlog.get_logger(__name__)

TRIGGER_GAP = 1.0
"""Seconds between looks at the least, however often one is asked for."""
GRACE_RETRY = 2.0
COMES_LATE = frozenset({"GpuMissing", "EfaMissing", "DriverNotLoaded", "GpuHandleError"})
"""Faults that a machine shows while it boots and its devices are not all there yet; every other one is believed."""
JITTER = 0.1
"""Part of the interval by which looks are moved, so that the agents of a fleet do not look in step."""


class ChildSource:
    """One child, the probes that it answers for, and its timing.

    :param module: module of :mod:`fleetwell.probes` that is the child.
    :param probes: whose reports it owes, in order.
    :param asked: settings for the child, asked for each time.
    """

    def __init__(
        self,
        module: str,
        probes: tuple[str, ...],
        timing: Timing,
        asked: Callable[[], Mapping[str, object]],
        assessment: Assessment,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.child = SupervisedChild(module)
        self.last_resolved: float | None = None
        """When it was last known how a look ended, by the monotonic clock; a look that hung is known to have."""
        self.first_look = asyncio.Event()
        self._module = module
        self._probes = probes
        self._timing = timing
        self._asked = asked
        self._assessment = assessment
        self._wall = wall
        self._monotonic = monotonic
        self._triggered = asyncio.Event()
        self._complete_once = False
        self._pauses = 0
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def patience(self) -> float:
        """Seconds in which a look must be resolved, its own deadline included."""
        return self._timing.interval * (1 + JITTER) + self._timing.deadline + 1.0

    def trigger(self) -> None:
        """Ask for a look now."""
        self._triggered.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not look while this lasts; one look follows at its end."""
        self._pauses += 1
        self._resumed.clear()
        for probe in self._probes:
            self._assessment.pause(probe)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._resumed.set()
                self.trigger()

    async def run(self) -> None:
        """Look, again and again, until cancelled."""
        try:
            while True:
                await self._until_resumed()
                began = self._monotonic()
                pause = await self.look()
                self.first_look.set()
                gone = self.child.gone() if self.child.outstanding else None
                await self._wait(pause, gone)
                await asyncio.sleep(max(0.0, TRIGGER_GAP - (self._monotonic() - began)))
        finally:
            self.child.close()

    async def look(self) -> float:
        """Look once; give the seconds until the next look."""
        self._triggered.clear()
        deadline = self._timing.deadline
        argv = launch.module(self._module, {**self._asked(), "deadline": deadline})
        outcome = await self.child.run(argv, deadline=deadline, env=launch.environment())
        self.last_resolved = self._monotonic()
        interval = self._timing.interval * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 (spreads load)
        if not isinstance(outcome, Answer):
            self._fail(outcome)
            return interval
        try:
            reports = protocol.read(outcome.output, self._probes)
            settled = self._take(reports)
        except protocol.NonsenseError as error:
            self._fail(Nonsense(str(error)))
            return interval
        return interval if settled else min(interval, GRACE_RETRY)

    def _take(self, reports: tuple[protocol.ChildReport, ...]) -> bool:
        """Give the reports to triage; say whether all were believed."""
        at, boot = self._wall(), self._assessment.boot
        young = not self._complete_once and boot.uptime(at) < self._timing.boot_grace
        believed = True
        for report in reports:
            snapshot = report.snapshot(at=at, boot_id=boot.boot_id)
            if young and (report.absent or any(one.fault in COMES_LATE for one in snapshot.observations)):
                believed = False
                continue
            if report.absent:
                self._assessment.take(ProbeBlind(probe=report.probe, at=at, evidence=report.absent))
            else:
                self._assessment.remember(report.probe, report.inventory)
                self._assessment.take(snapshot)
        self._complete_once = self._complete_once or believed
        return believed

    def _fail(self, outcome: Outcome) -> None:
        fault, said = failure(outcome)
        log.warning("a probe gave no answer", probes=self._probes, fault=fault, why=said)
        for probe in self._probes:
            self._assessment.take(ProbeFailed(probe=probe, fault=FaultName(fault), at=self._wall(), evidence=said))

    async def _until_resumed(self) -> None:
        while not self._resumed.is_set():
            self.last_resolved = self._monotonic()  # Waiting here is what it should do.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timing.interval):
                    await self._resumed.wait()

    async def _wait(self, pause: float, gone: Coroutine[object, object, object] | None) -> None:
        """Wait until a look is due or asked for, or the child that hung is gone."""
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self._triggered.wait())]
        if gone is not None:
            waits.append(asyncio.ensure_future(gone))
        try:
            await asyncio.wait(waits, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def failure(outcome: Outcome) -> tuple[str, str]:
    """Name the fault of a probe that gave no answer, and say what happened."""
    match outcome:
        case Hung():
            stays = "; SIGKILL did not end it, so it is left alone and watched" if outcome.abandoned else ""
            return "ProbeHung", f"no answer within {outcome.deadline:g} s{stays}"
        case Outstanding():
            return "ProbeHung", f"process {outcome.pid} of an earlier look still hangs"
        case Crashed():
            last = outcome.stderr.strip().splitlines()
            return "ProbeCrashed", f"{outcome.reason}: {last[-1]}" if last else outcome.reason
        case Nonsense():
            return "ProbeNonsense", outcome.reason
        case Answer():
            raise ValueError("an answer is no failure")
