"""Has a node's agent do something: a NodeOperation, and the doorbell that makes the agent read it.

The object's name is made from incident and attempt, so creating it twice gives the same one; the agent sees to it that
it is carried out at most once.
"""

from __future__ import annotations

from fleetwell.api import GROUP, VERSION
from fleetwell.api.node_operation import OperationKind, OperationPhase
from fleetwell.api.resources import NODE_HEALTHS, NODE_OPERATIONS, NodeHealth, NodeOperation
from fleetwell.control.effects.reach import SETTLED, Outcome, Reach, about_node, live_node, not_yet, why_not_ours
from fleetwell.control.settings import MANAGER
from fleetwell.kube.client import PatchKind
from fleetwell.kube.errors import AlreadyExists, Conflict, NotFound
from fleetwell.kube.objects import ObjectMeta, OwnerReference
from fleetwell.policy.instructions import CancelOperation, Operate

INCIDENT_LABEL = "fleetwell.io/incident"
NODE_LABEL = "fleetwell.io/node"
_AT_MOST_ONCE = frozenset({OperationKind.REBOOT, OperationKind.RESET_GPU})


async def operate(reach: Reach, wanted: Operate) -> Outcome:
    """Have the operation exist and the node's doorbell name it."""
    operation = await _found(reach, wanted.name)
    health = await _health(reach, wanted.spec.node_name)
    rung = health is not None and health.spec.operation == wanted.name
    over = operation is not None and (operation.status.phase.ended or rung)
    # The bell is what begins it, so what the decision rested on must still hold also when the object is there already.
    if not over and (why := await _why_not(reach, wanted, health)) is not None:
        return why
    if operation is None:
        operation = await _created(reach, wanted)
    if operation.spec.operation_id != wanted.spec.operation_id:
        return not_yet(
            f"NodeOperation {wanted.name} is another's (id {operation.spec.operation_id}); it is left alone", 30.0
        )
    if over or operation.status.phase.ended:
        return SETTLED
    return await _rung(reach, wanted, health)


async def cancel(reach: Reach, wanted: CancelOperation) -> Outcome:
    """Keep the operation from being begun; the agent refuses nothing that runs already."""
    operation = await _found(reach, wanted.name)
    if operation is None or operation.spec.cancel or operation.status.phase.ended:
        return SETTLED
    if operation.status.phase is OperationPhase.RUNNING:
        return Outcome(settled=True, detail=f"NodeOperation {wanted.name} runs already and is left to end")
    version = operation.metadata.resource_version
    body = {"metadata": {"resourceVersion": version}, "spec": {"cancel": True}}
    try:
        await reach.client.patch(NODE_OPERATIONS, wanted.name, body, kind=PatchKind.MERGE, field_manager=MANAGER)
    except NotFound:
        return SETTLED
    except Conflict:
        return not_yet(f"NodeOperation {wanted.name} has just changed; looking again", again=0.5)
    return SETTLED


async def _found(reach: Reach, name: str) -> NodeOperation | None:
    try:
        return await reach.client.get(NODE_OPERATIONS, name)
    except NotFound:
        return None


async def _health(reach: Reach, node: str) -> NodeHealth | None:
    try:
        return await reach.client.get(NODE_HEALTHS, node)
    except NotFound:
        return None


async def _why_not(reach: Reach, wanted: Operate, health: NodeHealth | None) -> Outcome | None:
    """Say why the operation must not be made now; None when what the decision rested on still holds."""
    spec = wanted.spec
    node = await live_node(reach, spec.node_name, spec.node_uid)
    if node is None:
        return SETTLED
    if spec.expected_boot_id and node.status.node_info.boot_id != spec.expected_boot_id:
        return not_yet(
            f"{spec.node_name} has booted since {spec.kind.value} was decided; nothing is asked of it", again=2.0
        )
    if reach.clock.now() >= spec.deadline:
        return not_yet(
            f"the deadline of {spec.kind.value} on {spec.node_name} has passed before it was made", again=30.0
        )
    known = reach.health_version(spec.node_name)
    if spec.kind in _AT_MOST_ONCE and known and health is not None and health.metadata.resource_version != known:
        return not_yet(
            f"{spec.node_name} has reported anew since {spec.kind.value} was decided; deciding again", again=0.5
        )
    if why := await why_not_ours(reach, wanted.incident, wanted.incident_uid, wanted.attempt):
        return not_yet(f"{why}; {spec.kind.value} is not asked for", again=5.0)
    return None


async def _created(reach: Reach, wanted: Operate) -> NodeOperation:
    spec = wanted.spec
    owner = OwnerReference(
        api_version=f"{GROUP}/{VERSION}",
        kind="Incident",
        name=wanted.incident,
        uid=wanted.incident_uid,
        controller=True,
    )
    labels = {NODE_LABEL: spec.node_name} if len(spec.node_name) <= 63 else {}
    meta = ObjectMeta(name=wanted.name, labels=labels, owner_references=[owner])
    try:
        made = await reach.client.create(NODE_OPERATIONS, NodeOperation(metadata=meta, spec=spec))
    except AlreadyExists:
        return await reach.client.get(NODE_OPERATIONS, wanted.name)
    message = f"{spec.kind.value} asked of the node's agent ({wanted.name}) for Incident {wanted.incident}"
    reach.events.record(
        about_node(spec.node_name, spec.node_uid), spec.kind.value, message, warning=spec.kind in _AT_MOST_ONCE
    )
    return made


async def _rung(reach: Reach, wanted: Operate, health: NodeHealth | None) -> Outcome:
    node = wanted.spec.node_name
    if health is None:
        return not_yet(
            f"{node} has no NodeHealth: no agent has ever reported there, so nobody hears the doorbell", again=5.0
        )
    body = {"metadata": {"resourceVersion": health.metadata.resource_version}, "spec": {"operation": wanted.name}}
    try:
        await reach.client.patch(NODE_HEALTHS, node, body, kind=PatchKind.MERGE, field_manager=MANAGER)
    except NotFound:
        return not_yet(f"the NodeHealth of {node} has just gone", again=5.0)
    except Conflict:
        return not_yet(f"{node} has just reported; looking again before the bell is rung", again=0.5)
    return SETTLED
