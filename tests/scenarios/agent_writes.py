"""What an agent's token may write, and what it may not: the table of S18, each row one patch that is really sent."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from fleetwell.api.node_operation import OperationKind, OperationPhase
from fleetwell.api.resources import NODE_HEALTHS, NODE_OPERATIONS
from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.resource import LEASES, NODES, Raw, Resource
from fleetwell.lab.site import NAMESPACE

THERMAL = "fleetwell.io/ThermalHealthy"


def condition(kind: str, state: str, reason: str) -> dict[str, str]:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastTransitionTime": now, "lastHeartbeatTime": now}
    return {"type": kind, "status": state, "reason": reason, "message": "a scenario", **times}


class Write(NamedTuple):
    """One patch."""

    resource: Resource[Any]
    name: str
    body: Any
    subresource: str | None = "status"
    kind: PatchKind = PatchKind.STRATEGIC
    namespace: str | None = None

    async def by(self, client: Client) -> None:
        await client.patch(
            self.resource,
            self.name,
            self.body,
            kind=self.kind,
            namespace=self.namespace,
            subresource=self.subresource,
        )


def of_node(node: str, *conditions: dict[str, str], **status: Any) -> Write:
    return Write(NODES, node, {"status": {**({"conditions": list(conditions)} if conditions else {}), **status}})


def of_health(node: str) -> Write:
    return Write(NODE_HEALTHS, node, {"status": {"summary": "a scenario"}}, kind=PatchKind.MERGE)


def of_lease(node: str) -> Write:
    return Write(LEASES, node, {"spec": {"holderIdentity": node}}, None, PatchKind.MERGE, NAMESPACE)


def of_operation(node: str) -> Write:
    body = {"status": {"phase": OperationPhase.ACCEPTED.value}}
    return Write(NODE_OPERATIONS, f"scenario-{node}", body, kind=PatchKind.MERGE)


def of_metadata(**metadata: Any) -> Write:
    return Write(NODES, "gpu-1", {"metadata": metadata})


ITS_OWN = {
    "its own condition": of_node("gpu-1", condition(THERMAL, "Unknown", "Scenario")),
    "its own NodeHealth": of_health("gpu-1"),
    "its own Lease": of_lease("gpu-1"),
    "its own operation": of_operation("gpu-1"),
}
REFUSED = {
    "our condition on another node": of_node("gpu-2", condition(THERMAL, "False", "Scenario")),
    "another node's NodeHealth": of_health("gpu-2"),
    "another node's Lease": of_lease("gpu-2"),
    "another node's operation": of_operation("gpu-2"),
    "the kubelet's Ready": of_node("gpu-1", condition("Ready", "False", "Scenario")),
    "a condition of a new type": of_node("gpu-1", condition("scenario.example/New", "True", "Scenario")),
    "a condition with our prefix and no type of ours": of_node("gpu-1", condition("fleetwell.io/X", "True", "X")),
    "taking Ready away": of_node("gpu-1", {"type": "Ready", "$patch": "delete"}),
    "allocatable": of_node("gpu-1", allocatable={"nvidia.com/gpu": "80"}),
    "capacity": of_node("gpu-1", capacity={"nvidia.com/gpu": "80"}),
    "addresses": of_node("gpu-1", addresses=[{"type": "ExternalIP", "address": "192.0.2.1"}]),
    "labels": of_metadata(labels={"fleetwell.io/pool": "another"}),
    "annotations": of_metadata(annotations={"scenario.example/note": "x"}),
    "finalizers": of_metadata(finalizers=["scenario.example/never"]),
}
NO_RIGHT = {
    "taints": Write(NODES, "gpu-1", {"spec": {"taints": []}}, None),
    "what it is asked to do": Write(NODE_HEALTHS, "gpu-1", {"spec": {"operation": "x"}}, None, PatchKind.MERGE),
    "what its node must have": Write(NODE_HEALTHS, "gpu-1", {"spec": {"expected": {"gpus": 1}}}, None, PatchKind.MERGE),
    "an operation's order": Write(NODE_OPERATIONS, "scenario-gpu-1", {"spec": {"cancel": True}}, None, PatchKind.MERGE),
}


def orders(uids: dict[str, str]) -> list[Raw]:
    """Give an order for each node, by its UID, that no doorbell names."""
    return [
        {
            "apiVersion": NODE_OPERATIONS.api_version,
            "kind": NODE_OPERATIONS.kind,
            "metadata": {"name": f"scenario-{node}"},
            "spec": {
                "kind": OperationKind.COLLECT_LOGS.value,
                "nodeName": node,
                "nodeUID": uids[node],
                "incident": "scenario",
                "operationID": f"scenario-{node}",
                "expectedBootID": "",
                "deadline": "2100-01-01T00:00:00Z",
            },
        }
        for node in uids
    ]
