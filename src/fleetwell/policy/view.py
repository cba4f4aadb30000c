"""What the deciding code sees: the fleet at one moment, as plain values.

The controller keeps these up to date from its informers; tests and the rehearsal make them by hand.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetwell.api.incident import IncidentSpec, IncidentStatus
from fleetwell.api.node_health import Machine, NodeHealthStatus
from fleetwell.api.node_operation import NodeOperationSpec, NodeOperationStatus
from fleetwell.api.policy import PolicySpec

QUARANTINE_TAINT = "fleetwell.io/quarantine"
UNPROVEN_TAINT = "fleetwell.io/unproven"
RESERVED_MARKS = ("karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-repair")
"""Annotations that a node under repair in place wears, so that nobody else replaces it meanwhile."""
NOT_ORDERED = "NotOrdered"
"""State of a replacement that was looked for and is not there."""


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One Node object and what its agent says, at this moment."""

    name: str
    uid: str
    resource_version: str = ""
    pool: str = ""
    instance_type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    """Whether the kubelet says Ready=True."""
    cordoned: bool = False
    """``spec.unschedulable``, whoever set it."""
    our_taint: bool = False
    unproven: bool = False
    """It wears the taint of a node that was never admitted."""
    taints_of_others: tuple[str, ...] = ()
    """Keys of NoSchedule and NoExecute taints that are not ours."""
    taint_removed_by: str = ""
    """Field manager that is seen to have taken our mark away, where it is missing; empty when none is."""
    marks: tuple[str, ...] = ()
    """Those of our own annotations in :data:`RESERVED_MARKS` that the node wears because of us."""
    deleting: bool = False
    created: dt.datetime | None = None
    """When the Node object was made, by the API server's clock; None where that is not known."""
    boot_id: str = ""
    machine: Machine = Machine()
    allocatable_gpus: int = -1
    health: NodeHealthStatus | None = None
    """What its agent last wrote, or None when it never wrote."""
    agent_fresh: bool = False
    """Whether the agent's Lease is fresh by the controller's own clock."""
    agent_known: bool = False
    """Whether an agent was ever seen on this node UID."""
    pods: PodsView | None = None
    """What runs on it; only known for nodes in an episode."""
    gang: str = ""
    """Key of the gang (JobSet, PodGroup, owner) whose pods run here, where it spans nodes."""


@dataclass(frozen=True, kw_only=True)
class PodsView:
    """What a drain of the node has before it."""

    to_evict: int
    """Pods that a drain has to move, terminating ones included."""
    stuck_terminating: int = 0
    """Those of them that are terminating beyond their grace: they block a reset, not a reboot or a replacement."""
    blocked_by: str = ""
    counted_at: dt.datetime | None = None


@dataclass(frozen=True, kw_only=True)
class OperationView:
    """A NodeOperation as the episode sees it."""

    name: str
    spec: NodeOperationSpec
    status: NodeOperationStatus


@dataclass(frozen=True, kw_only=True)
class ReplacementView:
    """What the provider says of a replacement that was ordered."""

    name: str
    state: str
    """``Ordered``, ``Succeeded``, ``Failed`` or :data:`NOT_ORDERED`."""
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A RemediationPolicy that governs nodes."""

    name: str
    generation: int
    spec: PolicySpec


@dataclass(frozen=True, kw_only=True)
class Episode:
    """An Incident as a value: its name and UID, what it is about, and where it stands."""

    name: str
    uid: str
    spec: IncidentSpec
    status: IncidentStatus


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What one episode's decision may look at besides itself."""

    node: NodeView | None
    """None when no Node of this name with the episode's UID exists any more."""
    policy: Policy | None
    """The policy that governs the node; None when none does any more."""
    policy_problem: str = ""
    """Why the policy may not be enforced (a tie, a DaemonSet without the toleration), else empty."""
    operations: Mapping[str, OperationView] = field(default_factory=dict)
    """The episode's operations by name."""
    replacement: ReplacementView | None = None
    pool_nodes: int = 0
    """Nodes of the pool that are admitted and not deleting, this one included."""
    machine_attempts: int = 0
    """Attempts on this machine in the last seven days by earlier episodes."""

    def operation(self, name: str, operation_id: str) -> OperationView | None:
        """Give the operation of this name, unless it is one that an earlier incident of the same name has left."""
        found = self.operations.get(name)
        return found if found is not None and found.spec.operation_id == operation_id else None
