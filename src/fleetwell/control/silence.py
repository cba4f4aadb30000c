"""Says in a node's conditions that its agent is silent: nobody else can, and an old ``True`` would be taken for health.

Only the types that the agent had published are touched, one by one by strategic merge; the agent takes them back with
its next look.
"""

from __future__ import annotations

from typing import Any

from fleetwell.api.fields import words
from fleetwell.control.effects.reach import Reach, about_node
from fleetwell.control.settings import MANAGER
from fleetwell.control.wire import rfc3339
from fleetwell.health.vocabulary import ConditionStatus, ConditionType
from fleetwell.kube.client import PatchKind
from fleetwell.kube.errors import Conflict, NotFound
from fleetwell.kube.objects import Node
from fleetwell.kube.resource import LEASES, NODES

AGENT_SILENT = "AgentSilent"
_OURS = frozenset(ConditionType)


def to_silence(node: Node) -> bool:
    """Whether the node wears conditions of ours that still claim to know something."""
    return any(condition.type in _OURS and condition.reason != AGENT_SILENT for condition in node.status.conditions)


async def silence(reach: Reach, name: str, renewed_at: str) -> bool:
    """Set our conditions to Unknown, unless the agent has renewed since ``renewed_at``; False to try again."""
    try:
        lease = await reach.client.get(LEASES, name, reach.settings.namespace)
        if (lease.spec.renew_time or "") != renewed_at:
            return True
    except NotFound:
        pass  # a Lease that is gone is not renewed either
    try:
        node = await reach.client.get(NODES, name)
        if not to_silence(node):
            return True
        patch = _patch(node, rfc3339(reach.clock.now()), reach.settings.agent_stale_after)
        await reach.client.patch(
            NODES, name, patch, kind=PatchKind.STRATEGIC, subresource="status", field_manager=MANAGER
        )
    except NotFound:
        return True
    except Conflict:
        return False
    message = "fleetwell's agent no longer renews its Lease; its conditions are Unknown until it is back"
    reach.events.record(about_node(name, node.metadata.uid), AGENT_SILENT, message, warning=True)
    return True


def _patch(node: Node, now: str, stale_after: float) -> dict[str, Any]:
    conditions = []
    for condition in node.status.conditions:
        if condition.type not in _OURS or condition.reason == AGENT_SILENT:
            continue
        unchanged = condition.status == ConditionStatus.UNKNOWN
        conditions.append(
            {
                "type": condition.type,
                "status": ConditionStatus.UNKNOWN.value,
                "reason": AGENT_SILENT,
                "message": f"no heartbeat of the agent for {words(stale_after)}; it last said {condition.status}",
                "lastTransitionTime": condition.last_transition_time if unchanged else now,
                "lastHeartbeatTime": now,
            }
        )
    # The lock is against the agent alone, which takes its conditions back in the same moment.
    meta = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {"metadata": meta, "status": {"conditions": conditions}}
