"""What must be true of the cluster for an episode as it stands, worked out from its status alone in every pass.

While another episode of the same node UID is open, an ended one has nothing to say: the controller asks only the open
one, and the ended one gives up its mark in :func:`fleetwell.policy.ladder.decide` once the node wears none.
"""

from __future__ import annotations

from fleetwell.api.incident import IncidentKind, IncidentStatus, Phase, ProofRun
from fleetwell.api.node_operation import NodeOperationSpec, OperationKind
from fleetwell.api.policy import Mode, QuarantineBy, Remedy
from fleetwell.policy.beginning import attempt_name, begun, may_begin
from fleetwell.policy.case import OPEN_RESULTS
from fleetwell.policy.evidence import standing
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
from fleetwell.policy.leaving import PUT_BACK_AT_MOST
from fleetwell.policy.proof import proof_name
from fleetwell.policy.view import Episode, NodeView, Policy, Surroundings

_KINDS = {Remedy.REBOOT: OperationKind.REBOOT, Remedy.RESET_GPU: OperationKind.RESET_GPU}


def desired(episode: Episode, around: Surroundings) -> tuple[Instruction, ...]:
    """Give all that must be true now. An ended episode wants its marks off the node, and then nothing."""
    node = around.node
    if node is not None and node.uid != episode.spec.node_uid:
        node = None
    wanted: list[Instruction] = []
    if node is not None and episode.status.phase.ended:
        if marks_left(node, episode.status) or _unadmitted(node, episode):
            wanted.append(Restore(node=node.name, uid=node.uid, incident=episode.name))
    elif node is not None:
        wanted += _on_node(episode, node, around)
    kept = {it.name for it in wanted if isinstance(it, Operate)}
    wanted += [
        CancelOperation(name=view.name)
        for view in around.operations.values()
        if view.name not in kept and not view.status.phase.ended and not view.spec.cancel
    ]
    return tuple(wanted)


def marks_left(node: NodeView, status: IncidentStatus) -> bool:
    """Whether the node still wears anything that this episode may have put on it."""
    mark = status.quarantine
    if mark is None:
        return False
    return node.our_taint or bool(node.marks) or (QuarantineBy(mark.by) is QuarantineBy.CORDON and node.cordoned)


def forgettable(episode: Episode, around: Surroundings) -> bool:
    """Whether an episode is over, has given up its mark (see ``decide``), and wants nothing any more."""
    over = episode.status.phase.ended and episode.status.quarantine is None
    return over and not desired(episode, around)


def _unadmitted(node: NodeView, episode: Episode) -> bool:
    return (
        node.unproven
        and episode.spec.kind is IncidentKind.ADMISSION
        and episode.status.phase is Phase.RELEASED
        and node.uid == episode.spec.node_uid
    )


def _on_node(episode: Episode, node: NodeView, around: Surroundings) -> list[Instruction]:
    status, policy = episode.status, around.policy
    touching = policy is not None and policy.spec.mode is not Mode.DRY_RUN
    going_on = touching and not around.policy_problem
    wanted: list[Instruction] = []
    mark = status.quarantine
    if mark is not None and touching and mark.put_back <= PUT_BACK_AT_MOST:
        by = QuarantineBy(mark.by)
        wanted.append(
            Quarantine(node=node.name, uid=node.uid, by=by, incident=episode.name, reserve=not _leaving(status))
        )
    if policy is None:
        return wanted
    if status.phase is Phase.DRAINING and going_on and status.drain is not None:
        stands = standing(status.findings, node, policy.spec)
        lead = stands.lead
        if lead is not None and stands.live:  # while nothing is said against the node, nobody is sent away from it
            wanted.append(
                DrainNode(
                    node=node.name,
                    uid=node.uid,
                    incident=episode.name,
                    rule=lead.rule.drain,
                    deadline=status.drain.deadline,
                )
            )
    if status.attempts and status.attempts[-1].result in OPEN_RESULTS:
        begins = status.phase is Phase.REMEDYING and going_on
        wanted += _attempted(episode, around, node, policy, begins=begins)
    if status.phase is Phase.PROVING and status.proofs:
        wanted += _proven(episode, node, policy, status.proofs[-1])
    return wanted


def _leaving(status: IncidentStatus) -> bool:
    """A machine whose replacement is ordered is no longer kept from those who would take it away."""
    last = status.attempts[-1] if status.attempts else None
    return last is not None and last.remedy is Remedy.REPLACE and last.result in OPEN_RESULTS


def _attempted(
    episode: Episode, around: Surroundings, node: NodeView, policy: Policy, *, begins: bool
) -> list[Instruction]:
    attempt = episode.status.attempts[-1]
    begin = begins and may_begin(episode.status, attempt, node, policy)
    name = attempt_name(episode.name, attempt.number)
    # Whether a replacement was ordered is known to the provider alone, so that it is looked for in any case.
    if attempt.remedy is not Remedy.REPLACE and not (begin or (begins and begun(episode, around, attempt))):
        return []
    if attempt.remedy is Remedy.RESTART_WORKLOAD:
        return [
            RestartPods(
                node=node.name,
                uid=node.uid,
                incident=episode.name,
                component=attempt.component,
                started_before=attempt.started_at,
            )
        ]
    if attempt.remedy is Remedy.REPLACE:
        template = policy.spec.replacement.template
        if template is None:
            return []
        return [
            OrderReplacement(
                name=name,
                attempt=attempt.number,
                begin=begin,
                node=node.name,
                uid=node.uid,
                provider_id=episode.status.machine.provider_id or node.machine.provider_id,
                incident=episode.name,
                incident_uid=episode.uid,
                boot_id=attempt.expected_boot_id,
                template=template,
            )
        ]
    return [
        Operate(
            name=name,
            incident=episode.name,
            incident_uid=episode.uid,
            spec=NodeOperationSpec(
                kind=_KINDS[attempt.remedy],
                node_name=node.name,
                node_uid=node.uid,
                incident=episode.name,
                operation_id=f"{episode.uid}-a{attempt.number}",
                expected_boot_id=attempt.expected_boot_id,
                deadline=attempt.deadline,
                component=attempt.component,
            ),
            attempt=attempt.number,
        )
    ]


def _proven(episode: Episode, node: NodeView, policy: Policy, run: ProofRun) -> list[Instruction]:
    """The proof that is under way. It runs in every mode: it is part of giving a node back."""
    over = run.passed is not None or bool(run.detail) or run.started_at < episode.status.since
    if over or run.expected_boot_id != node.boot_id:
        return []
    return [
        Operate(
            name=proof_name(episode.name, run.number),
            incident=episode.name,
            incident_uid=episode.uid,
            spec=NodeOperationSpec(
                kind=OperationKind.PROVE,
                node_name=node.name,
                node_uid=node.uid,
                incident=episode.name,
                operation_id=f"{episode.uid}-p{run.number}",
                expected_boot_id=run.expected_boot_id,
                deadline=run.deadline,
                level=policy.spec.proof.level,
            ),
        )
    ]
