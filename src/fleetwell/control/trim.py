"""What is dropped from objects before they are kept: ten thousand nodes have to fit into memory."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fleetwell.control.node_view import GPU_RESOURCES, MARKED_FOR, MARKS
from fleetwell.health.vocabulary import ConditionType
from fleetwell.kube.objects import ManagedFieldsEntry, Node, NodeStatus
from fleetwell.policy.view import RESERVED_MARKS

_ANNOTATIONS = frozenset({MARKS, MARKED_FOR, *RESERVED_MARKS})
_MARKED_FIELDS = ("f:taints", "f:unschedulable")
_CONDITIONS = frozenset({"Ready", *ConditionType})


def trim_node(node: Node) -> Node:
    """Keep of a Node what decisions look at."""
    meta, status = node.metadata, node.status
    return replace(
        node,
        metadata=replace(
            meta,
            annotations={key: value for key, value in meta.annotations.items() if key in _ANNOTATIONS},
            managed_fields=[_writer(entry) for entry in meta.managed_fields if entry.subresource == ""],
            owner_references=[],
        ),
        status=NodeStatus(
            conditions=[condition for condition in status.conditions if condition.type in _CONDITIONS],
            allocatable={key: value for key, value in status.allocatable.items() if key in GPU_RESOURCES},
            node_info=status.node_info,
        ),
    )


def _writer(entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
    """Keep who wrote when, and of the fields only whether those that hold our marks were among them."""
    spec = (entry.fields_v1 or {}).get("f:spec") or {}
    kept: dict[str, Any] = {name: {} for name in _MARKED_FIELDS if name in spec}
    return ManagedFieldsEntry(manager=entry.manager, time=entry.time, fields_v1={"f:spec": kept} if kept else None)
