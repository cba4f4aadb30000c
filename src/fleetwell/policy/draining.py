"""The phase in which the work on a node moves away, within a deadline."""

from __future__ import annotations

from msgspec.structs import replace

from fleetwell.api.incident import Drain, IncidentStatus, Phase
from fleetwell.api.policy import Remedy
from fleetwell.policy import story
from fleetwell.policy.case import DRY_RUN, PRECONDITION, Case, Step, next_rung
from fleetwell.policy.quarantining import approved, recovery_cancels
from fleetwell.policy.view import PodsView

DRAIN_DEADLINE = "DrainDeadline"


def draining(status: IncidentStatus, case: Case) -> Step:
    """Wait until nothing is left to evict; at the deadline hold or go on, as the rule says."""
    recovered = recovery_cancels(status, case)
    if recovered is not None:
        return recovered
    drain = status.drain
    if drain is None:
        return Step(status=story.move(status, Phase.QUARANTINED, case.now, "the drain had left no trace: once more"))
    bar = case.bar("go on draining the node")
    if bar is not None and bar.reason in {DRY_RUN, PRECONDITION}:
        return Step(status=story.hold(status, bar, case.now))
    status = story.lift(status, DRY_RUN, PRECONDITION)
    pods = case.node.pods
    if pods is None or pods.counted_at is None or pods.counted_at <= drain.started_at:
        pods = None
    else:
        drain = replace(drain, remaining=pods.to_evict, blocked_by=pods.blocked_by)
        status = status if drain == status.drain else replace(status, drain=drain)
        if _nothing_in_the_way(status, case, pods):
            return Step(status=_finished(status, drain, case, pods))
    if case.now < drain.deadline:
        return Step(status=story.coming(status, "end of the drain", drain.deadline))
    return Step(status=_overdue(status, drain, case))


def _nothing_in_the_way(status: IncidentStatus, case: Case, pods: PodsView) -> bool:
    """Pods terminating beyond their grace hold a GPU open, which blocks a reset and nothing stronger."""
    rung = next_rung(status, case)
    if rung is not None and rung.remedy is Remedy.RESET_GPU:
        return pods.to_evict == 0
    return pods.to_evict <= pods.stuck_terminating


def _finished(status: IncidentStatus, drain: Drain, case: Case, pods: PodsView) -> IncidentStatus:
    text = "drained"
    if pods.stuck_terminating:
        text = f"drained but for {pods.stuck_terminating} pods terminating beyond their grace ({pods.blocked_by})"
    status = replace(
        status,
        drain=replace(drain, finished_at=case.now),
        timeline=story.reach(status.timeline, "drained", case.now),
    )
    return story.move(status, Phase.REMEDYING, case.now, text)


def _overdue(status: IncidentStatus, drain: Drain, case: Case) -> IncidentStatus:
    lead = case.standing(status).lead
    left = "pods that were not counted" if drain.remaining < 0 else f"{drain.remaining} pods"
    blocked = f"{left} remain at the drain's deadline" + (f": {drain.blocked_by}" if drain.blocked_by else "")
    if approved(status) or (lead is not None and lead.rule.drain.on_deadline == "Proceed"):
        return story.move(status, Phase.REMEDYING, case.now, f"going on although {blocked}")
    status = story.coming(status, "the remedy, once they are gone or a person approves", drain.deadline)
    return story.hold(status, case.holding(DRAIN_DEADLINE, blocked), case.now)
