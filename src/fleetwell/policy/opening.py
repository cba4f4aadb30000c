"""When an episode begins, and when it does not because a person said that the node is to be left alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fleetwell.api.incident import (
    IncidentFinding,
    IncidentKind,
    IncidentSpec,
    IncidentStatus,
    Phase,
    QuarantineMark,
    Timeline,
)
from fleetwell.api.policy import Mode
from fleetwell.health.vocabulary import Recovery, Verdict, strongest
from fleetwell.policy import story
from fleetwell.policy.commands import closed_by_person, released_by_person
from fleetwell.policy.evidence import said_now, standing
from fleetwell.policy.matching import pool_of
from fleetwell.policy.view import Episode, NodeView, Policy

JUST_REGISTERED = dt.timedelta(minutes=30)
"""How young a Node is of which it is asked what its machine was before: long enough for a controller that was away. One
that has worked for longer is judged by what is found on it, and not taken out for what was once."""


class Opening(NamedTuple):
    """An episode that must be opened."""

    spec: IncidentSpec
    status: IncidentStatus


def opens(
    node: NodeView,
    policy: Policy | None,
    now: dt.datetime,
    past: Sequence[Episode] = (),
    of_machine: Sequence[Episode] = (),
) -> Opening | None:
    """Say whether an episode must be opened for a node that has none open.

    :param past: ended episodes of this node UID, by which a person's veto is known.
    :param of_machine: episodes of the machine under this node, whatever its Node was called, oldest first.
    """
    if policy is None or node.deleting:
        return None
    if node.unproven and not _admitted(node, past):
        return _opening(IncidentKind.ADMISSION, node, policy, now)
    unfinished = _unfinished(node, of_machine) if _just_registered(node, now) else None
    if unfinished is not None and policy.spec.mode is not Mode.DRY_RUN:
        return _resumed(unfinished, node, policy, now)
    stands = standing(said_now(node, now), node, policy.spec)
    if not stands.now or _left_alone(node, [ask.finding for ask in stands.now], past):
        return None
    return _opening(IncidentKind.REPAIR, node, policy, now)


def vetoed(node: NodeView, past_episodes: Iterable[Episode]) -> bool:
    """Whether a person's word to leave this node alone still holds for all that is found on it now.

    It ends with a new boot, a new component or a stronger recovery.
    """
    return _left_alone(node, said_now(node), past_episodes)


def _left_alone(node: NodeView, findings: Iterable[IncidentFinding], past: Iterable[Episode]) -> bool:
    asking = [it for it in findings if it.verdict is not Verdict.OK and it.recovery is not Recovery.NONE]
    ended = [it for it in past if it.spec.node_uid == node.uid and it.status.boot_id == node.boot_id]
    return any(_covers(it.status, asking) for it in ended)


def _covers(status: IncidentStatus, findings: Sequence[IncidentFinding]) -> bool:
    by_hand = status.phase is Phase.VETOED or released_by_person(status)
    tested = status.phase is Phase.RELEASED and all(finding.suspected for finding in findings)
    if not findings or not (by_hand or tested):
        return False
    # What an agent still listed of an earlier boot is not what the person looked at.
    seen = [finding for finding in status.findings if finding.boot_id in {"", status.boot_id}]
    components = {finding.component for finding in seen}
    known = strongest([status.recovery, *(finding.recovery for finding in seen)])
    return all(it.component in components and it.recovery.rank <= known.rank for it in findings)


def _admitted(node: NodeView, past: Sequence[Episode]) -> bool:
    """Whether this node was let in already and only its taint is still to go."""
    return any(
        it.spec.kind is IncidentKind.ADMISSION and it.spec.node_uid == node.uid and it.status.phase is Phase.RELEASED
        for it in past
    )


def _just_registered(node: NodeView, now: dt.datetime) -> bool:
    return node.created is None or now - node.created < JUST_REGISTERED


def _unfinished(node: NodeView, of_machine: Sequence[Episode]) -> Episode | None:
    """Give the machine's last episode where its Node went away before the machine was given back.

    Deleting a Node object mends nothing, and takes our mark along: whoever registers again is the machine that was
    taken out, also where it was to be replaced.
    """
    last = of_machine[-1] if of_machine else None
    if last is None or last.spec.node_uid == node.uid or last.status.timeline.quarantined is None:
        return None
    left = not last.status.phase.ended or last.status.phase in {Phase.GONE, Phase.REPLACED}
    return last if left and not closed_by_person(last.status) else None


def _resumed(before: Episode, node: NodeView, policy: Policy, now: dt.datetime) -> Opening:
    opening = _opening(IncidentKind.REPAIR, node, policy, now)
    text = f"opened: incident {before.name} had taken this machine out, and it is back as another Node: it is tested"
    status = IncidentStatus(
        phase=Phase.PROVING,
        since=now,
        timeline=Timeline(opened=now, quarantined=now),
        policy_generation=policy.generation,
        pool=opening.status.pool,
        machine=before.status.machine,
        boot_id=node.boot_id,
        recovery=before.status.recovery,
        findings=tuple(replace(it, active=False) for it in before.status.findings),
        quarantine=QuarantineMark(by=policy.spec.quarantine.value),
    )
    return Opening(opening.spec, story.summarise(story.say(status, now, text), "a machine that was taken out is back"))


def _opening(kind: IncidentKind, node: NodeView, policy: Policy, now: dt.datetime) -> Opening:
    spec = IncidentSpec(kind=kind, node_name=node.name, node_uid=node.uid, policy=policy.name)
    repair = kind is IncidentKind.REPAIR
    status = IncidentStatus(
        phase=Phase.TOLERATING if repair else Phase.PROVING,
        since=now,
        timeline=Timeline(opened=now),
        policy_generation=policy.generation,
        pool=node.pool or pool_of(node.labels, policy.spec),
        machine=node.machine,
        boot_id=node.boot_id,
    )
    if not repair:
        return Opening(
            spec, story.summarise(story.say(status, now, "opened: a new node has to prove itself"), "new node")
        )
    findings = said_now(node, now)
    lead = standing(findings, node, policy.spec).lead
    what = f"{lead.finding.fault} on {lead.finding.component}" if lead is not None else "a fault"
    text = f"opened: {what}" + (f": {lead.finding.evidence}" if lead is not None and lead.finding.evidence else "")
    recovery = lead.finding.recovery if lead is not None else Recovery.NONE
    status = story.say(status, now, text[:300])
    return Opening(spec, story.summarise(replace(status, findings=findings, recovery=recovery, counted_at=now), what))
