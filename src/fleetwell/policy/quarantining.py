"""The phases in which a node is watched and kept from new work: Tolerating, Suspected, Quarantined, Maintenance."""

from __future__ import annotations

import datetime as dt

from msgspec.structs import replace

from fleetwell.api.fields import seconds, span, words
from fleetwell.api.incident import Drain, IncidentStatus, Phase
from fleetwell.api.policy import DrainRule, Remedy
from fleetwell.policy import story
from fleetwell.policy.case import BARS, PRECONDITION, Case, Step, next_rung
from fleetwell.policy.evidence import Standing
from fleetwell.policy.instructions import RequestKind
from fleetwell.policy.others import others_at_work
from fleetwell.policy.proof import to_proving

MARK_MISSING_AFTER = dt.timedelta(minutes=1)
"""How long our mark may take to be seen on the node before the episode says that it is missing."""


def tolerating(status: IncidentStatus, case: Case) -> Step:
    """Wait until the fault has lasted too long, or has been gone for long enough."""
    stands = case.standing(status)
    if not stands.now:
        return _without_evidence(status, stands, case)
    work = others_at_work(case.node)
    if work:
        return Step(status=interrupt(status, case, work))
    left = stands.tolerated_for - story.bad_for(status, case.now)
    if left > 0:
        at = (status.counted_at or case.now) + dt.timedelta(seconds=stands.tolerated_for - status.bad_seconds)
        return Step(status=story.coming(story.lift(status, *BARS), "quarantine", at))
    if not stands.live:
        if next_rung(status, case) is None:
            text = "restarting the workload has not helped, and a machine is not taken out for what a job did"
            return Step(status=story.move(status, Phase.NEEDS_PERSON, case.now, text))
        doing = "restart the workload that the fault belongs to"
        return case.ask(status, RequestKind.REMEDY, Remedy.RESTART_WORKLOAD, doing)
    return case.ask(status, RequestKind.QUARANTINE, None, "quarantine the node")


def _without_evidence(status: IncidentStatus, stands: Standing, case: Case) -> Step:
    if case.admission():
        return Step(status=to_proving(status, case, "nothing is found any more"))
    if stands.stale:
        deadline = status.since + span(case.policy.spec.release.settle_deadline)
        if case.now >= deadline:
            text = f"nobody has looked again since the node restarted: {case.unsettled() or 'an old finding is kept'}"
            return Step(status=story.move(status, Phase.NEEDS_PERSON, case.now, text))
        return Step(status=story.coming(status, "the agent's first full look at this boot", deadline))
    if case.quiet(status):
        text = f"gone by itself, and quiet for {case.policy.spec.release.quiet}"
        return Step(status=story.move(status, Phase.CLEARED, case.now, text))
    status = replace(status, hold=None)
    return Step(status=story.coming(status, "cleared if it stays away", case.quiet_at(status) or case.now))


def quarantined(status: IncidentStatus, case: Case) -> Step:
    """Keep new work away until the drain may begin; stop here when the node has recovered."""
    recovered = recovery_cancels(status, case)
    if recovered is not None:
        return recovered
    stands = case.standing(status)
    if stands.unintelligible and not approved(status):
        text = "the fault could not be understood: it is kept from new work, and a person has to judge it"
        return Step(status=story.move(status, Phase.NEEDS_PERSON, case.now, text))
    lead = stands.lead
    if lead is None:
        return Step(status=story.coming(status, "proof", case.quiet_at(status) or case.now))
    at = status.since + span(lead.rule.drain.after)
    if case.now < at:
        return Step(status=story.coming(status, "drain", at))
    return Step(status=_begin_drain(status, case, lead.rule.drain))


def _begin_drain(status: IncidentStatus, case: Case, rule: DrainRule) -> IncidentStatus:
    """Begin the drain once our mark is seen: before that, pods would land again on what is being emptied."""
    bar = case.bar("drain the node")
    if bar is None and not case.marked(status):
        patience = status.since + MARK_MISSING_AFTER
        if case.now < patience:
            return story.coming(story.lift(status, *BARS), "drain, once our mark is seen on the node", patience)
        bar = case.holding(PRECONDITION, "our mark is not on the node, so new pods could land while it is drained")
    if bar is not None:
        return story.hold(status, bar, case.now)
    drain = Drain(started_at=case.now, deadline=case.now + span(rule.deadline))
    return story.move(replace(status, drain=drain), Phase.DRAINING, case.now, f"draining, at most {rule.deadline}")


def suspected(status: IncidentStatus, case: Case) -> Step:
    """Let running work end while no new work comes, then prove; a fault that is seen really ends the waiting."""
    recovered = recovery_cancels(status, case)
    if recovered is not None:
        return recovered
    stands = case.standing(status)
    lead = stands.lead
    if not stands.suspicion or lead is None:
        return Step(status=story.move(status, Phase.QUARANTINED, case.now, "more than a suspicion now"))
    pods = case.node.pods
    if pods is not None and pods.to_evict == 0 and pods.counted_at is not None and pods.counted_at > status.since:
        return Step(status=to_proving(status, case, "the work on it has ended, so the suspicion can be tested"))
    deadline = status.since + span(lead.rule.drain.deadline)
    if case.now < deadline:
        return Step(status=story.coming(status, "end of waiting for the running work", deadline))
    if lead.rule.drain.on_deadline == "Proceed" or approved(status):
        return Step(status=story.move(status, Phase.QUARANTINED, case.now, "the work on it did not end in time"))
    waiting = case.holding("Suspected", "the work on it runs on, and the policy says hold rather than drain")
    return Step(status=story.hold(status, waiting, case.now))


def maintenance(status: IncidentStatus, case: Case) -> Step:
    """Stand back while others are at work, up to a deadline."""
    work = others_at_work(case.node)
    before = status.interrupted or Phase.TOLERATING
    if not work:
        back = story.move(status, before, case.now, "nobody else is at work on it any more")
        return Step(status=replace(back, interrupted=None))
    if status.quarantine is None and not case.admission() and case.quiet(status):
        return Step(status=story.move(status, Phase.CLEARED, case.now, "gone while others were at work on it"))
    deadline = status.since + span(case.policy.spec.release.settle_deadline)
    if case.now >= deadline:
        text = f"waited {case.policy.spec.release.settle_deadline} for others: {work}"
        return Step(status=story.move(status, Phase.NEEDS_PERSON, case.now, text))
    return Step(status=story.coming(status, "a person is asked if others are not done", deadline))


def interrupt(status: IncidentStatus, case: Case, work: str) -> IncidentStatus:
    """Stand back because others are at work."""
    moved = story.move(status, Phase.MAINTENANCE, case.now, f"standing back: {work}")
    return replace(moved, interrupted=status.phase)


def recovery_cancels(status: IncidentStatus, case: Case) -> Step | None:
    """Leave the way to a remedy when the node has recovered, restarted by itself, or is in others' hands."""
    stands = case.standing(status)
    if case.rebooted(status) and not stands.bad:
        text = "the node restarted in the meantime: it is tested rather than repaired for what an earlier boot said"
        return Step(status=to_proving(status, case, text))
    if stands.live:
        work = others_at_work(case.node)
        return Step(status=interrupt(status, case, work)) if work else None
    if stands.stale:
        return Step(status=to_proving(status, case, "nothing is known against this boot"))
    if case.quiet(status):
        text = f"recovered by itself and quiet for {case.policy.spec.release.quiet}: the remedy is cancelled"
        return Step(status=to_proving(status, case, text))
    status = replace(status, hold=None)
    return Step(status=story.coming(status, "proof if it stays away", case.quiet_at(status) or case.now))


def approved(status: IncidentStatus) -> bool:
    """Whether a person said in this episode that it may go on."""
    return any(handled.startswith(("approve@", "retry@")) for handled in status.handled)


def why_quarantined(status: IncidentStatus, case: Case) -> str:
    """Say why the quarantine begins: the fault, how long it was bad, and what was tolerated."""
    stands = case.standing(status)
    lead = stands.lead
    what = f"{lead.finding.fault} on {lead.finding.component}" if lead is not None else "a fault"
    bad, allowed = words(story.bad_for(status, case.now)), words(seconds(lead.rule.tolerate) if lead else 0.0)
    return f"quarantined: {what}, bad for {bad} of {allowed} tolerated"
