"""Why a generation ended and whether another one follows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .blame import exit_code_of, root_of
from .protocol import Concluded, Failure, History, Outcome, Reason
from .seats import named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .seats import Seat


@dataclass(frozen=True, slots=True)
class Verdict:
    """The reason, in words too, and the root where a worker is it."""

    reason: Reason
    why: str
    root: Failure | None = None

    def finish(self, restarts: int, max_restarts: int) -> int | None:
        """Return the run's exit code, or None when another generation follows.

        Only failures of workers count against the budget: a lost launcher is the platform's loss, and a drain nobody's.
        """
        if self.reason is Reason.DONE:
            return 0
        if self.reason is Reason.FAILURE and restarts > max_restarts:
            return exit_code_of(self.root)
        return None


def judge(seats: Mapping[int, Seat], leaving: set[int], failures: Sequence[Failure]) -> Verdict:
    """Judge a generation that has ended everywhere; ``leaving`` are the nodes that asked for a drain."""
    outcomes = {seat.exited.outcome for seat in seats.values() if seat.exited}
    gone = sorted(node for node, seat in seats.items() if seat.exited is None)
    root = root_of(failures)
    if gone and set(gone) <= leaving:
        return Verdict(Reason.DRAIN, f"{named(gone)} drained and went before the save was reported", root)
    if gone:
        return Verdict(Reason.LAUNCHER_LOST, f"the launcher of {named(gone)} is gone", root)
    if root is not None:
        return Verdict(Reason.FAILURE, root.sentence(), root)
    if outcomes == {Outcome.DONE}:
        return Verdict(Reason.DONE, "all workers finished")
    together = Outcome.DRAINED in outcomes and Outcome.ENDED not in outcomes
    if together or leaving:
        how = "all ranks left at one step" if together else "the generation was ended without a save"
        return Verdict(Reason.DRAIN, f"{named(sorted(leaving))} drained: {how}")
    return Verdict(Reason.LAUNCHER_LOST, "a launcher ended its workers")


def reached(seats: Mapping[int, Seat], before: History) -> History:
    """Return the history after a generation: what it reached, else what was known before it stepped."""
    exits = [seat.exited for seat in seats.values() if seat.exited]
    steps = [exited.last_step for exited in exits] + [seat.status.step for seat in seats.values()]
    saves = [exited.saved_step for exited in exits] + [seat.status.saved for seat in seats.values()]
    last, saved = max(steps, default=0), max(saves, default=0)
    return History(before.generation, before.restarts, last or before.last_step, saved or before.saved_step)


def conclusion(generation: int, verdict: Verdict, known: History, finish: int | None = None) -> Concluded:
    """Word a verdict for the launchers; ``finish`` is the run's exit code when it is over."""
    steps = (known.last_step, known.saved_step, known.restarts)
    return Concluded(generation, verdict.reason, verdict.why, *steps, root=verdict.root, finish=finish)
