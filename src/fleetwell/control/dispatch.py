"""Hands instructions to the effects: at most one effect per node at a time, many nodes at once.

A seat belongs to a node. It remembers what is wanted there and how far that is; what is true already by the picture is
not asked for again, and what failed or is not settled is run again at its time. All times are the injected monotonic
clock's, so that tests step them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from fleetwell.control.effects import mark, operate, replace, restart
from fleetwell.control.effects.drain import Drains, count_pods
from fleetwell.control.effects.reach import SETTLED, Outcome, Reach, not_yet
from fleetwell.control.picture import Picture
from fleetwell.control.truth import holds
from fleetwell.kube.errors import KubeError
from fleetwell.policy.instructions import (
    CancelOperation,
    DrainNode,
    Instruction,
    Operate,
    OrderReplacement,
    Quarantine,
    RestartPods,
    Restore,
)

log = structlog.get_logger(__name__)

AFTER_FAILURE = 5.0
ECHO = 1.0
"""Seconds within which the picture is expected to show what an effect has just done."""


@dataclass(frozen=True)
class CountPods:
    """The node's pods must be known, though none is evicted: a suspicion is tested once they are gone."""

    node: str
    incident: str


Wanted = tuple[Instruction | CountPods, ...]


@dataclass
class _Seat:
    wanted: Wanted = ()
    outcomes: dict[Instruction | CountPods, Outcome] = field(default_factory=dict)
    due: float = 0.0
    task: asyncio.Task[None] | None = None


class Dispatcher:
    """The seats of all nodes in an episode."""

    def __init__(self, reach: Reach, picture: Picture, *, on_result: Callable[[], None]) -> None:
        self._reach = reach
        self._picture = picture
        self._on_result = on_result
        self._drains = Drains()
        self._seats: dict[str, _Seat] = {}
        self._slots = asyncio.Semaphore(reach.settings.workers)

    def want(self, node: str, wanted: Wanted) -> None:
        """Say what must be true of a node from now on; nothing, when ``wanted`` is empty."""
        seat = self._seats.get(node)
        if seat is None:
            if not wanted:
                return
            seat = self._seats[node] = _Seat()
        for over in _drained(seat.wanted) - _drained(wanted):
            self._drains.forget(over)
        if seat.wanted != wanted:
            seat.due = 0.0
        seat.wanted = wanted
        seat.outcomes = {it: outcome for it, outcome in seat.outcomes.items() if it in wanted}
        if not wanted and seat.task is None:
            del self._seats[node]

    def start_due(self) -> None:
        """Start the effects whose time has come, on nodes where none is at work."""
        now = self._reach.clock.monotonic()
        for node, seat in list(self._seats.items()):
            if seat.task is None and seat.due <= now and self._open(seat):
                seat.task = asyncio.create_task(self._work(node, seat), name=f"effects on {node}")

    def next_due(self) -> float | None:
        """Say at which monotonic time an effect has to be run next; None when none has."""
        return min((seat.due for seat in self._seats.values() if seat.task is None and self._open(seat)), default=None)

    async def idle(self) -> None:
        """Wait until no effect is at work."""
        while tasks := [seat.task for seat in self._seats.values() if seat.task is not None]:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Stop the effects at work and wait for them to end."""
        tasks = [seat.task for seat in self._seats.values() if seat.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def detail(self, node: str) -> str:
        """Say what keeps the effects of a node from being settled; empty when nothing does."""
        seat = self._seats.get(node)
        return "; ".join(it.detail for it in seat.outcomes.values() if not it.settled and it.detail) if seat else ""

    def _open(self, seat: _Seat) -> bool:
        return any(self._wants_run(seat, one) for one in seat.wanted)

    def _wants_run(self, seat: _Seat, one: Instruction | CountPods) -> bool:
        if isinstance(one, CountPods):
            return True
        truth = holds(one, self._picture)
        if truth is not None:
            return not truth
        outcome = seat.outcomes.get(one)
        return outcome is None or not outcome.settled

    async def _work(self, node: str, seat: _Seat) -> None:
        """Run what is wanted once, in order; taking capacity waits for what comes before, giving it back does not."""
        wanted = seat.wanted
        try:
            async with self._slots:
                again, settled = ECHO, True
                for one in wanted:
                    if not self._wants_run(seat, one):
                        continue
                    if not settled and not isinstance(one, Quarantine | Restore | CancelOperation):
                        continue
                    outcome = await self._attempt(node, one)
                    before, seat.outcomes[one] = seat.outcomes.get(one), outcome
                    if outcome.detail and (before is None or before.detail != outcome.detail):
                        log.info("effect", node=node, effect=type(one).__name__, detail=outcome.detail)
                    self._report(one, outcome)
                    if not outcome.settled:
                        again = outcome.again if settled else min(again, outcome.again)
                        settled = False
                if seat.wanted == wanted:
                    seat.due = self._reach.clock.monotonic() + again
        finally:
            seat.task = None
            if not seat.wanted:
                self._seats.pop(node, None)
            self._on_result()

    def _report(self, one: Instruction | CountPods, outcome: Outcome) -> None:
        if isinstance(one, DrainNode | CountPods) and outcome.pods is not None:
            self._picture.book.pods_counted(one.incident, outcome.pods)
        if isinstance(one, OrderReplacement) and outcome.replacement is not None:
            self._picture.book.replacement_seen(one.incident, outcome.replacement)

    async def _attempt(self, node: str, one: Instruction | CountPods) -> Outcome:
        kind = type(one).__name__
        try:
            async with asyncio.timeout(self._reach.settings.effect_timeout):
                outcome = await self._run(one)
        except TimeoutError:
            outcome = not_yet(
                f"{kind} on {node} did not end in {self._reach.settings.effect_timeout:g} s", AFTER_FAILURE
            )
        except KubeError as error:
            outcome = not_yet(f"{kind} on {node}: {error}", AFTER_FAILURE)
        except Exception as error:
            # One node's effect must not end the controller: the others, and every release, depend on it.
            log.exception("an effect failed unexpectedly", node=node, effect=kind)
            outcome = not_yet(f"{kind} on {node} failed unexpectedly: {error!r}", AFTER_FAILURE)
        return outcome

    async def _run(self, one: Instruction | CountPods) -> Outcome:  # noqa: PLR0911 (one line for each kind)
        reach = self._reach
        match one:
            case Quarantine():
                return await mark.quarantine(reach, one)
            case Restore():
                return await mark.restore(reach, one)
            case DrainNode():
                return await self._drains.sweep(reach, one)
            case Operate():
                return await operate.operate(reach, one)
            case CancelOperation():
                return await operate.cancel(reach, one)
            case OrderReplacement():
                return await replace.replace(reach, one)
            case RestartPods():
                return await restart.restart(reach, one)
            case CountPods():
                pods = await count_pods(reach, one.node)
                return Outcome(settled=False, again=AFTER_FAILURE, pods=pods)
        return SETTLED


def _drained(wanted: Wanted) -> set[str]:
    return {it.incident for it in wanted if isinstance(it, DrainNode)}
