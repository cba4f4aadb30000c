"""The subset of Kubernetes' own objects that fleetwell reads and writes.

Most hold only some of the fields, so writing one back whole would erase the rest: change them with a patch. ``Lease``
is complete and may be replaced.
"""

# ruff: noqa: RUF012 (msgspec copies an empty list or dict default for each object)

from __future__ import annotations

from typing import Any

import msgspec

from fleetwell.kube.meta import (
    Condition,
    LabelSelector,
    ManagedFieldsEntry,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
    Part,
)
from fleetwell.kube.pods import Container, ContainerStatus, Pod, PodSpec, PodStatus, Toleration

__all__ = [
    "Condition",
    "Container",
    "ContainerStatus",
    "DaemonSet",
    "DaemonSetSpec",
    "DaemonSetStatus",
    "Event",
    "EventSource",
    "LabelSelector",
    "Lease",
    "LeaseSpec",
    "ManagedFieldsEntry",
    "Node",
    "NodeAddress",
    "NodeCondition",
    "NodeSpec",
    "NodeStatus",
    "NodeSystemInfo",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "Part",
    "Pod",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "Taint",
    "Toleration",
]

NodeCondition = Condition
"""A Node's condition: the general one, with its heartbeat."""


class Taint(Part, frozen=True):
    """Keeps pods without a matching toleration away from a node."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(Part, frozen=True):
    """What a Node should be: its taints, its cordon, the machine behind it."""

    taints: list[Taint] = []
    unschedulable: bool = False
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeSystemInfo(Part, frozen=True):
    """What the kubelet says about the machine; a new ``boot_id`` means that it has really been restarted."""

    boot_id: str = msgspec.field(name="bootID", default="")
    machine_id: str = msgspec.field(name="machineID", default="")
    system_uuid: str = msgspec.field(name="systemUUID", default="")
    kernel_version: str = ""
    os_image: str = ""
    operating_system: str = ""
    architecture: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""


class NodeAddress(Part, frozen=True):
    """One address of a node."""

    type: str
    address: str


class NodeStatus(Part, frozen=True):
    """What a Node is. Quantities are the API's strings (``"8"``, ``"2048Gi"``)."""

    conditions: list[NodeCondition] = []
    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}
    node_info: NodeSystemInfo = NodeSystemInfo()
    addresses: list[NodeAddress] = []


class Node(Part, frozen=True):
    """A machine as the cluster sees it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodTemplate(Part, frozen=True):
    """What the pods of a workload are made from."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class DaemonSetSpec(Part, frozen=True):
    """Which pods a DaemonSet keeps on each node."""

    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class DaemonSetStatus(Part, frozen=True):
    """How far a DaemonSet is."""

    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    updated_number_scheduled: int = 0
    observed_generation: int = 0


class DaemonSet(Part, frozen=True):
    """One pod on each matching node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class LeaseSpec(Part, frozen=True):
    """Who holds a Lease and since when; times are RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(Part, frozen=True):
    """A small object that is cheap to renew: leadership and freshness."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class EventSource(Part, frozen=True):
    """Which component reported, from which host."""

    component: str = ""
    host: str = ""


class Event(Part, frozen=True):
    """Something that happened to an object, for people (core/v1)."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    action: str = ""
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""


class PodDisruptionBudgetSpec(Part, frozen=True):
    """How many pods of a workload must stay."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Part, frozen=True):
    """How many pods may go now."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, Any] = {}
    conditions: list[Condition] = []


class PodDisruptionBudget(Part, frozen=True):
    """Bounds how many pods of a workload an eviction may take at once."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
