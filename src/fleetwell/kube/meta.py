"""What every Kubernetes object carries: its metadata.

The structs hold what fleetwell reads or writes; unknown fields are ignored when decoding, and fields at their default
are left out when encoding. They are frozen because informers hand the same object to every reader, and untracked by the
garbage collector because decoded JSON is a tree: with ten thousand nodes in memory a collection would otherwise walk
all of them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Part(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True, gc=False):
    """A piece of a Kubernetes object, with the API's camelCase names on the wire."""


class OwnerReference(Part, frozen=True):
    """The object that owns this one: when it goes, the garbage collector takes this one too."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ManagedFieldsEntry(Part, frozen=True):
    """Which writer set which fields, and when: how a person's edit is told from a controller's."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str | None = None
    fields_type: str = ""
    fields_v1: dict[str, Any] | None = None
    subresource: str = ""


class ObjectMeta(Part, frozen=True):
    """Name, identity and bookkeeping of an object. ``name`` is empty only where ``generate_name`` is used."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []
    managed_fields: list[ManagedFieldsEntry] = []


class ObjectReference(Part, frozen=True):
    """Points at an object, as Events do."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class LabelSelector(Part, frozen=True):
    """Which labels an object must have; expressions are kept as the API gives them."""

    match_labels: dict[str, str] = {}
    match_expressions: list[dict[str, Any]] = []


class Condition(Part, frozen=True):
    """One condition of an object's status. ``last_heartbeat_time`` is there on Nodes only."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None
    observed_generation: int = 0
