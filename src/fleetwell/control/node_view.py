"""A Node object as the value that the deciding code looks at, and what we remember on the Node itself.

What we put on a node stands in an annotation beside it, since a taint or a cordon does not say who made it: only what
is written there is ever taken away again.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetwell.api.node_health import Machine, NodeHealthStatus
from fleetwell.control.settings import MANAGER
from fleetwell.control.wire import parse_time
from fleetwell.kube.objects import ManagedFieldsEntry, Node
from fleetwell.policy.view import QUARANTINE_TAINT, RESERVED_MARKS, UNPROVEN_TAINT, NodeView, PodsView

MARKS = "fleetwell.io/marks"
"""Annotation: what of ours the node wears, e.g. ``taint,karpenter.sh/do-not-disrupt``."""
MARKED_FOR = "fleetwell.io/incident"
"""Annotation: name of the Incident for which it wears it."""
TAINT_MARK = "taint"
CORDON_MARK = "cordon"
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
_KEEPS_WORK_OFF = frozenset({"NoSchedule", "NoExecute"})
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def our_marks(annotations: dict[str, str]) -> frozenset[str]:
    """Read which marks on the node are ours."""
    return frozenset(filter(None, (part.strip() for part in annotations.get(MARKS, "").split(","))))


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What is known of a node from elsewhere than its Node object."""

    pool: str = ""
    health: NodeHealthStatus | None = None
    agent_fresh: bool = False
    agent_known: bool = False
    pods: PodsView | None = None


def node_view(node: Node, beside: Beside) -> NodeView:
    """Give the deciding code's view of a node."""
    meta, spec = node.metadata, node.spec
    keys = [taint.key for taint in spec.taints]
    marks = our_marks(meta.annotations)
    health = beside.health if beside.health and beside.health.node_uid in {"", meta.uid} else None
    machine = health.machine if health else Machine()
    return NodeView(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        pool=beside.pool,
        instance_type=meta.labels.get(_INSTANCE_TYPE, ""),
        labels=meta.labels,
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions),
        cordoned=spec.unschedulable,
        our_taint=QUARANTINE_TAINT in keys,
        unproven=UNPROVEN_TAINT in keys,
        taints_of_others=tuple(
            taint.key
            for taint in spec.taints
            if taint.effect in _KEEPS_WORK_OFF and taint.key not in {QUARANTINE_TAINT, UNPROVEN_TAINT}
        ),
        taint_removed_by="" if QUARANTINE_TAINT in keys else mark_removed_by(node),
        marks=tuple(mark for mark in RESERVED_MARKS if mark in marks and mark in meta.annotations),
        deleting=meta.deletion_timestamp is not None,
        created=parse_time(meta.creation_timestamp),
        boot_id=node.status.node_info.boot_id,
        machine=machine
        if machine.provider_id
        else Machine(
            provider_id=spec.provider_id,
            serial=machine.serial,
            instance_type=machine.instance_type or meta.labels.get(_INSTANCE_TYPE, ""),
            gpus=machine.gpus,
        ),
        allocatable_gpus=allocatable_gpus(node),
        health=health,
        agent_fresh=beside.agent_fresh,
        agent_known=beside.agent_known,
        pods=beside.pods,
    )


def allocatable_gpus(node: Node) -> int:
    """Count the GPUs that the kubelet offers; -1 when no device plugin has said anything."""
    for resource in GPU_RESOURCES:
        if (quantity := node.status.allocatable.get(resource)) is not None and quantity.isdecimal():
            return int(quantity)
    return -1


def mark_removed_by(node: Node) -> str:
    """Name the field manager that is seen to have taken our mark away; empty when none is.

    A writer that removes the last taint, or a cordon, leaves no field behind, so managedFields name nobody: that is how
    ``kubectl taint NODE KEY-`` and ``kubectl uncordon`` look. What others wrote before says nothing about it.
    """
    what = "f:unschedulable" if CORDON_MARK in our_marks(node.metadata.annotations) else "f:taints"
    owning = [entry for entry in node.metadata.managed_fields if entry.subresource == "" and _owns(entry, what)]
    latest = max(owning, key=lambda entry: entry.time or "", default=None)
    return latest.manager if latest and latest.manager != MANAGER else ""


def _owns(entry: ManagedFieldsEntry, spec_field: str) -> bool:
    return spec_field in ((entry.fields_v1 or {}).get("f:spec") or {})
