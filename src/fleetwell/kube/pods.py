"""Pods, with what a drain must know and what the lab's kubelet needs to run one."""

# ruff: noqa: RUF012 (msgspec copies an empty list or dict default for each object)

from __future__ import annotations

from typing import Any

import msgspec

from fleetwell.kube.meta import Condition, ObjectMeta, Part


class Toleration(Part, frozen=True):
    """Lets a pod onto nodes with a matching taint; an empty key with ``Exists`` tolerates everything."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Resources(Part, frozen=True):
    """What a container asks for; quantities are the API's strings."""

    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class FieldRef(Part, frozen=True):
    """A field of the pod itself, e.g. ``metadata.name`` or ``spec.nodeName``."""

    field_path: str
    api_version: str = ""


class EnvSource(Part, frozen=True):
    """Where a variable's value comes from, for the sources fleetwell reads."""

    field_ref: FieldRef | None = None
    secret_key_ref: dict[str, Any] | None = None
    config_map_key_ref: dict[str, Any] | None = None


class EnvVar(Part, frozen=True):
    """One environment variable of a container."""

    name: str
    value: str = ""
    value_from: EnvSource | None = None


class Container(Part, frozen=True):
    """One program of a pod."""

    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    env: list[EnvVar] = []
    resources: Resources = Resources()
    ports: list[dict[str, Any]] = []
    volume_mounts: list[dict[str, Any]] = []
    termination_message_path: str = ""
    termination_message_policy: str = ""
    restart_policy: str | None = None


class PodSpec(Part, frozen=True):
    """What a pod runs, and where it may."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] | None = None
    containers: list[Container] = []
    init_containers: list[Container] = []
    volumes: list[dict[str, Any]] = []
    tolerations: list[Toleration] = []
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    priority: int | None = None
    priority_class_name: str = ""
    scheduler_name: str = ""
    service_account_name: str = ""
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""


class Waiting(Part, frozen=True):
    """A container that is not yet running."""

    reason: str = ""
    message: str = ""


class Running(Part, frozen=True):
    """A container that runs."""

    started_at: str | None = None


class Terminated(Part, frozen=True):
    """A container that has ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class ContainerState(Part, frozen=True):
    """Exactly one of the three is set."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True):
    """How one container of a pod is."""

    name: str
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")
    container_id: str = msgspec.field(name="containerID", default="")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Part, frozen=True):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    start_time: str | None = None
    host_ip: str = msgspec.field(name="hostIP", default="")
    pod_ip: str = msgspec.field(name="podIP", default="")
    qos_class: str = ""
    observed_generation: int = 0


class Pod(Part, frozen=True):
    """A group of containers on one node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
