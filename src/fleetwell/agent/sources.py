"""Lets each probe look when it is due or asked for, and turns what its child gave into triage's words."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager

import structlog

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.settings import Timing
from fleetwell.health.stimuli import ProbeBlind, ProbeFailed
from fleetwell.health.vocabulary import FaultName, Snapshot, Verdict
from fleetwell.probes import launch, protocol
from fleetwell.probes.child import Answer, Crashed, Hung, Nonsense, Outcome, Outstanding, SupervisedChild

log = structlog.get_logger(__name__)

GRACE_RETRY = 2.0
COMES_LATE = frozenset(
    {
        "GpuMissing",
        "EfaMissing",
        "EfaInitFailed",
        "NicInitFailed",
        "NicMissing",
        "NicDriverMissing",
        "NicDriverConflict",
        "DriverNotLoaded",
        "DriverOperandMissing",
        "GpuHandleError",
    }
)
"""Faults that a machine shows while it boots and its devices are not all there yet; every other one is believed."""
UNTIL_WELL = 2
"""Good looks after a bad one until all is well again, as triage has it (``ok_to_clear``)."""
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
        self.name = module
        self.child = SupervisedChild(module)
        self.last_resolved: float | None = None
        """When it was last known how a look ended, by the monotonic clock; a look that hung is known to have."""
        self.first_look = asyncio.Event()
        self.outcomes: Counter[str] = Counter()
        """How its looks ended so far: ``answer``, ``hung``, ``crashed``, ``nonsense``, ``outstanding``."""
        self.on_look: Callable[[str, float], None] = lambda _source, _seconds: None
        """Told of each look how many seconds it took."""
        self.hangs = False
        """Whether its latest look hung, or found an earlier one hanging."""
        self.on_failure: Callable[[], None] = lambda: None
        """Told of each look that gave no answer."""
        self._begun = 0
        self._ended = 0
        self._look_ended = asyncio.Event()
        self._module = module
        self._probes = probes
        self._timing = timing
        self._asked = asked
        self._assessment = assessment
        self._wall = wall
        self._monotonic = monotonic
        self._triggered = asyncio.Event()
        self._complete_once = False
        self._restless = 0
        self._pauses: list[str] = []
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def patience(self) -> float:
        """Seconds in which a look must be resolved, its own deadline included."""
        return self._timing.interval * (1 + JITTER) + self._timing.deadline + 1.0

    def trigger(self) -> None:
        """Ask for a look now."""
        self._triggered.set()

    async def look_anew(self, times: int = 1) -> None:
        """Have so many looks begin from now on, as soon as may be, and wait for their end."""
        last = self._begun + times
        while self._ended < last:
            self.trigger()
            ended = self._look_ended
            await ended.wait()

    @contextmanager
    def paused(self, why: str = "an operation is carried out") -> Iterator[None]:
        """Do not look while this lasts, nor go on with a look that has begun; one follows at its end."""
        self._pauses.append(why)
        self._resumed.clear()
        self.child.interrupt()
        self._say_paused()
        try:
            yield
        finally:
            self._pauses.remove(why)
            if self._pauses:
                self._say_paused()
            else:
                self._resumed.set()
                self.trigger()

    def _say_paused(self) -> None:
        for probe in self._probes:
            self._assessment.pause(probe, self._pauses[-1])

    async def run(self) -> None:
        """Look, again and again, until cancelled."""
        try:
            while True:
                await self._until_resumed()
                began = self._monotonic()
                pause = await self.look()
                self.first_look.set()
                if self._restless and self._timing.again:
                    pause = min(pause, self._timing.again)
                gone = self.child.gone() if self.child.outstanding else None
                await self._wait(pause, gone)
                await asyncio.sleep(max(0.0, self._timing.gap - (self._monotonic() - began)))
        finally:
            self.child.close()

    async def look(self) -> float:
        """Look once; give the seconds until the next look."""
        self._triggered.clear()
        self._begun = this = self._begun + 1
        began = self._monotonic()
        try:
            return await self._look()
        finally:
            self.on_look(self.name, self._monotonic() - began)
            self._ended = this
            self._look_ended.set()
            self._look_ended = asyncio.Event()

    async def _look(self) -> float:
        deadline = self._timing.deadline
        argv = launch.module(self._module, {**self._asked(), "deadline": deadline})
        outcome = await self.child.run(argv, deadline=deadline, env=launch.environment())
        self.last_resolved = self._monotonic()
        self.hangs = isinstance(outcome, Hung | Outstanding)
        interval = self._timing.interval * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 (spreads load)
        if self._pauses:
            return interval  # What was interrupted says nothing, and what it saw is not how things are after the pause.
        if not isinstance(outcome, Answer):
            self._fail(outcome)
            return interval
        try:
            reports = protocol.read(outcome.output, self._probes)
            settled = self._take(reports)
        except protocol.NonsenseError as error:
            self._fail(Nonsense(str(error)))
            return interval
        self.outcomes["answer"] += 1
        return interval if settled else min(interval, GRACE_RETRY)

    def _take(self, reports: tuple[protocol.ChildReport, ...]) -> bool:
        """Give the reports to triage; say whether all were believed."""
        at, boot = self._wall(), self._assessment.boot
        young = not self._complete_once and boot.uptime(at) < self._timing.boot_grace
        believed = well = True
        for report in reports:
            snapshot = report.snapshot(at=at, boot_id=boot.boot_id)
            missed = report.absent and self._assessment.is_owed(report.probe)
            if young and (missed or any(one.fault in COMES_LATE for one in snapshot.observations)):
                believed = False
                continue
            well = well and not missed and not _is_bad(snapshot)
            if report.absent:
                self._assessment.take(ProbeBlind(probe=report.probe, at=at, evidence=report.absent))
            else:
                self._assessment.remember(report.probe, report.inventory)
                self._assessment.take(snapshot)
        self._complete_once = self._complete_once or believed
        self._restless = max(0, self._restless - 1) if well else UNTIL_WELL
        if any(_is_grave(one.verdict) and one.probe in self._probes for one in self._assessment.findings):
            # Found by an earlier agent, perhaps: it ends by two looks of this one.
            self._restless = max(self._restless, 1)
        return believed

    def _fail(self, outcome: Outcome) -> None:
        self.outcomes[type(outcome).__name__.lower()] += 1
        if any(self._assessment.is_owed(probe) for probe in self._probes):
            self._restless = UNTIL_WELL
        fault, said = failure(outcome)
        log.warning("a probe gave no answer", probes=self._probes, fault=fault, why=said)
        for probe in self._probes:
            self._assessment.take(ProbeFailed(probe=probe, fault=FaultName(fault), at=self._wall(), evidence=said))
        self.on_failure()

    async def _until_resumed(self) -> None:
        while not self._resumed.is_set():
            self.first_look.set()  # More is not to be expected, and the agent must not look dead for it.
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


def _is_bad(snapshot: Snapshot) -> bool:
    return any(_is_grave(one.verdict) for one in snapshot.observations)


def _is_grave(verdict: Verdict) -> bool:
    return verdict in {Verdict.BAD, Verdict.UNKNOWN}


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
