"""The ladder: what an episode does next, from what it is and what is around it.

``decide`` looks and may ask for leave; ``answer`` takes the leave or the hold into the status. Both give a status to be
written before anything is done, and :mod:`fleetwell.policy.wanted` says from that status alone what must be true of the
cluster. The controller that comes after a crash therefore goes on from the same place.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from fleetwell.api.fields import span
from fleetwell.api.incident import Hold, IncidentStatus, Phase, QuarantineMark
from fleetwell.api.node_health import Machine
from fleetwell.policy import story
from fleetwell.policy.attempts import intend, remedying
from fleetwell.policy.case import PRECONDITION, Case, Step
from fleetwell.policy.commands import held, obey
from fleetwell.policy.draining import draining
from fleetwell.policy.evidence import merged, said_now
from fleetwell.policy.instructions import Answer, Request, RequestKind
from fleetwell.policy.leaving import gone, needs_person, watch_mark
from fleetwell.policy.proof import proving
from fleetwell.policy.quarantining import maintenance, quarantined, suspected, tolerating, why_quarantined
from fleetwell.policy.view import Episode, Surroundings
from fleetwell.policy.wanted import marks_left

_PHASES: Final[Mapping[Phase, Callable[[IncidentStatus, Case], Step]]] = MappingProxyType(
    {
        Phase.TOLERATING: tolerating,
        Phase.SUSPECTED: suspected,
        Phase.MAINTENANCE: maintenance,
        Phase.HELD: held,
        Phase.QUARANTINED: quarantined,
        Phase.DRAINING: draining,
        Phase.REMEDYING: remedying,
        Phase.PROVING: proving,
        Phase.NEEDS_PERSON: needs_person,
    }
)

_MOVES_AT_ONCE: Final = 8
"""Phases that one decision may pass through; a longer way is gone in the next pass."""

_QUIET_PHASES: Final = (Phase.PROVING, Phase.REMEDYING)
"""Phases in which an agent that does not answer is no news: the node is being restarted or tested."""


def decide(episode: Episode, around: Surroundings, now: dt.datetime) -> Step:
    """Say how the episode stands now, what leave it asks for, and when it has to be looked at again at the latest."""
    if around.node is not None and around.node.uid != episode.spec.node_uid:
        around = _without_node(around)
    if episode.status.phase.ended:
        return Step(status=_forget_marks(episode.status, around))
    if around.node is None:
        return _finish(gone(episode, around, now), now)
    if around.policy is None and around.policy_problem:
        text = f"no policy governs the node, but {around.policy_problem}: everything stays as it is"
        unsure = Hold(reason=PRECONDITION, message=text, since=now, look_again_at=now + story.LOOK_AGAIN)
        return _finish(Step(status=story.hold(episode.status, unsure, now)), now)
    if around.policy is None:
        text = "released: no policy governs the node any more"
        return _finish(Step(status=story.move(episode.status, Phase.RELEASED, now, text)), now)
    case = Case(episode=episode, node=around.node, policy=around.policy, around=around, now=now)
    status = watch_mark(obey(_observe(episode.status, case), case), case)
    return _finish(_through_phases(status, case), now)


def answer(episode: Episode, request: Request, given: Answer, around: Surroundings, now: dt.datetime) -> IncidentStatus:
    """Take the leave, or the hold, into the status of an episode as ``decide`` left it.

    Nothing is begun when the ground for the request is gone by now.
    """
    status = episode.status
    if isinstance(given, Hold):
        return _summary(story.hold(status, given, now))
    node, policy = around.node, around.policy
    if node is None or policy is None or node.uid != episode.spec.node_uid or status.phase.ended:
        return status
    case = Case(episode=episode, node=node, policy=policy, around=around, now=now)
    if request.kind is RequestKind.REMEDY and request.remedy is not None:
        return _summary(intend(status, case, request.remedy))
    stands = case.standing(status)
    if status.phase is not Phase.TOLERATING or not stands.live:
        return status
    phase = Phase.SUSPECTED if stands.suspicion else Phase.QUARANTINED
    status = story.move(status, phase, now, why_quarantined(status, case))
    lead = stands.lead
    drain_at = now + span(lead.rule.drain.after) if lead is not None else now
    status = story.coming(status, "the running work's end" if stands.suspicion else "drain", drain_at)
    mark = QuarantineMark(by=policy.spec.quarantine.value)
    return _summary(replace(status, quarantine=mark, boot_id=node.boot_id))


def _through_phases(status: IncidentStatus, case: Case) -> Step:
    step = Step(status=status)
    for _ in range(_MOVES_AT_ONCE):
        phase = step.status.phase
        if phase.ended:
            break
        step = _PHASES[phase](step.status, case)
        if step.status.phase is phase:
            break
    return step


def _observe(status: IncidentStatus, case: Case) -> IncidentStatus:
    """Take in what is said now: findings join the episode, and its one clock runs while the node is bad."""
    seen = replace(
        status,
        findings=merged(status.findings, said_now(case.node, case.now)),
        policy_generation=case.policy.generation,
        pool=case.node.pool or status.pool,
        machine=_machine(status, case),
    )
    stands, said = case.standing(seen), case.said(seen)
    if said:
        seen = replace(seen, counted_at=seen.counted_at or case.now, quiet_since=None)
    else:
        quiet = None if stands.stale else seen.quiet_since or case.now
        seen = replace(seen, bad_seconds=story.bad_for(seen, case.now), counted_at=None, quiet_since=quiet)
    if said or stands.stale:
        seen = replace(seen, recovery=stands.recovery)
    seen = _reboot_noticed(seen, case)
    joined = [it for it in seen.findings if it.active and not _known(it.fault, it.component, status)]
    if joined and not (status.phase in _QUIET_PHASES and not stands.bad):
        names = ", ".join(f"{it.fault} on {it.component}" for it in joined[:4])
        seen = story.say(seen, case.now, f"found: {names}")
    return seen


def _machine(status: IncidentStatus, case: Case) -> Machine:
    """The hardware as it was known first: what a fault makes invisible stays on record."""
    known, seen = status.machine, case.node.machine
    return Machine(
        provider_id=known.provider_id or seen.provider_id,
        serial=known.serial or seen.serial,
        instance_type=known.instance_type or seen.instance_type,
        gpus=known.gpus or seen.gpus,
    )


def _reboot_noticed(status: IncidentStatus, case: Case) -> IncidentStatus:
    """Keep the boot that the evidence is of; while nothing was taken, a new boot only begins a new waiting."""
    stands = case.standing(status)
    boot = case.node.boot_id
    if stands.bad or not status.boot_id:
        return status if status.boot_id == boot or not boot else replace(status, boot_id=boot)
    if status.phase is Phase.TOLERATING and case.rebooted(status):
        return replace(story.say(status, case.now, "the node restarted by itself"), boot_id=boot, since=case.now)
    return status


def _known(fault: str, component: str, status: IncidentStatus) -> bool:
    return any(it.fault == fault and it.component == component for it in status.findings)


def _finish(step: Step, now: dt.datetime) -> Step:
    status = _summary(step.status)
    times = [step.wake] if step.wake is not None else []
    times += [status.next.at] if status.next is not None and status.next.at > now else []
    times += [status.hold.look_again_at] if status.hold is not None else []
    return Step(status=status, request=step.request, wake=min(times, default=None))


def _summary(status: IncidentStatus) -> IncidentStatus:
    asking = [it for it in status.findings if it.active] or list(status.findings)
    worst = max(asking, key=lambda it: (it.recovery.rank, it.verdict.severity), default=None)
    return story.summarise(status, f"{worst.fault} on {worst.component}" if worst is not None else "new node")


def _forget_marks(status: IncidentStatus, around: Surroundings) -> IncidentStatus:
    """An ended episode gives its mark up once the node wears none, so that it never undoes a later episode's."""
    if status.quarantine is None or (around.node is not None and marks_left(around.node, status)):
        return status
    return replace(status, quarantine=None)


def _without_node(around: Surroundings) -> Surroundings:
    return Surroundings(
        node=None,
        policy=around.policy,
        policy_problem=around.policy_problem,
        operations=around.operations,
        replacement=around.replacement,
        pool_nodes=around.pool_nodes,
        machine_attempts=around.machine_attempts,
    )
