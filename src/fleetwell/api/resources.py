"""The custom resources with their Kubernetes metadata, and where the API server keeps them."""

from __future__ import annotations

import msgspec

from fleetwell.api import GROUP, VERSION
from fleetwell.api.incident import IncidentSpec, IncidentStatus
from fleetwell.api.node_health import NodeHealthSpec, NodeHealthStatus
from fleetwell.api.node_operation import NodeOperationSpec, NodeOperationStatus
from fleetwell.api.policy import PolicySpec, PolicyStatus
from fleetwell.api.training_run import TrainingRunSpec, TrainingRunStatus
from fleetwell.kube.meta import ObjectMeta
from fleetwell.kube.resource import Resource


class RemediationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes, how long each fault is tolerated, what is done about it, and how much may be out at once."""

    metadata: ObjectMeta
    spec: PolicySpec
    status: PolicyStatus = PolicyStatus()


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent of one node knows of it; bears the node's name."""

    metadata: ObjectMeta
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus = NodeHealthStatus()


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One episode of one node, from the first finding to its end."""

    metadata: ObjectMeta
    spec: IncidentSpec
    status: IncidentStatus | None = None
    """None between the object's creation and its first status."""


class NodeOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an agent is asked to do, at most once, on one boot of one node."""

    metadata: ObjectMeta
    spec: NodeOperationSpec
    status: NodeOperationStatus = NodeOperationStatus()


class TrainingRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a training job reports of itself."""

    metadata: ObjectMeta
    spec: TrainingRunSpec
    status: TrainingRunStatus = TrainingRunStatus()


POLICIES = Resource(GROUP, VERSION, "remediationpolicies", "RemediationPolicy", False, RemediationPolicy, status=True)
NODE_HEALTHS = Resource(GROUP, VERSION, "nodehealths", "NodeHealth", False, NodeHealth, status=True)
INCIDENTS = Resource(GROUP, VERSION, "incidents", "Incident", False, Incident, status=True)
NODE_OPERATIONS = Resource(GROUP, VERSION, "nodeoperations", "NodeOperation", False, NodeOperation, status=True)
TRAINING_RUNS = Resource(GROUP, VERSION, "trainingruns", "TrainingRun", True, TrainingRun, status=True)
ALL = (POLICIES, NODE_HEALTHS, INCIDENTS, NODE_OPERATIONS, TRAINING_RUNS)
