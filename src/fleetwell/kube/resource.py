"""Resources of the API: where a kind lives, and the type that its objects decode into."""

from __future__ import annotations

import builtins
import functools
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from fleetwell.kube.objects import DaemonSet, Event, Lease, Node, Pod, PodDisruptionBudget

T = TypeVar("T")
Raw: TypeAlias = dict[str, Any]
"""An object of a kind for which fleetwell needs no struct."""


@dataclass(frozen=True)
class Resource(Generic[T]):
    """One kind of object at the API server.

    ``type`` is a ``msgspec.Struct`` or ``dict``. ``partial`` says that the struct leaves fields out, so that replacing
    the whole object with it would erase them. ``status`` says that the kind has a status subresource.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: builtins.type[T]
    status: bool = False
    partial: bool = False

    @property
    def api_version(self) -> str:
        """``v1`` for the core group, else ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def custom(self) -> bool:
        """Whether the kind comes from a CustomResourceDefinition, as far as the group's name tells."""
        return "." in self.group and (not self.group.endswith(".k8s.io") or self.group.endswith(".x-k8s.io"))

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Build the URL path of one object, or of the collection when ``name`` is None.

        Raises:
            ValueError: the scope does not fit the kind, or a segment cannot stand in a path.
        """
        if namespace and not self.namespaced:
            msg = f"{self.kind} is cluster-scoped, but namespace {namespace!r} was given"
            raise ValueError(msg)
        if name is not None and self.namespaced and not namespace:
            msg = f"{self.kind} {name!r} needs a namespace"
            raise ValueError(msg)
        segments = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            segments += ["namespaces", _segment(namespace)]
        segments.append(self.plural)
        if name is not None:
            segments.append(_segment(name))
        if subresource:
            segments.append(subresource)
        return "/" + "/".join(segments)

    def describe(self, namespace: str | None, name: str | None) -> str:
        """Name an object for messages: ``Pod training/rank-0``, or ``Pods in training``."""
        if name is None:
            return f"{self.plural} in {namespace}" if namespace else self.plural
        return f"{self.kind} {namespace}/{name}" if namespace else f"{self.kind} {name}"

    def decode(self, body: bytes | msgspec.Raw) -> T:
        """Decode one object; raises ``msgspec.DecodeError`` (``ValidationError`` where a field has another type)."""
        of: Any = self.type
        decoded: T = _decoder(of).decode(body)
        return decoded

    def encode(self, obj: T | Raw) -> bytes:
        """Encode an object with the ``apiVersion`` and ``kind`` that the server wants to see."""
        fields = dict(obj) if isinstance(obj, dict) else msgspec.to_builtins(obj)
        return msgspec.json.encode({**fields, "apiVersion": self.api_version, "kind": self.kind})


@functools.cache
def _decoder(of: Any) -> msgspec.json.Decoder[Any]:
    """Give the one decoder of a type: building one costs more than most decodes."""
    return msgspec.json.Decoder(of)


def _segment(text: str) -> str:
    if text in {"", ".", ".."}:
        msg = f"{text!r} cannot name an object: it would change the request's path"
        raise ValueError(msg)
    return quote(text, safe="")


NODES = Resource("", "v1", "nodes", "Node", False, Node, status=True, partial=True)
PODS = Resource("", "v1", "pods", "Pod", True, Pod, status=True, partial=True)
EVENTS = Resource("", "v1", "events", "Event", True, Event, partial=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
DAEMONSETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True, DaemonSet, status=True, partial=True)
PDBS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, PodDisruptionBudget, status=True, partial=True
)

NAMESPACES: Resource[Raw] = Resource("", "v1", "namespaces", "Namespace", False, dict)
CONFIG_MAPS: Resource[Raw] = Resource("", "v1", "configmaps", "ConfigMap", True, dict)
SERVICE_ACCOUNTS: Resource[Raw] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)
JOBS: Resource[Raw] = Resource("batch", "v1", "jobs", "Job", True, dict, status=True)
CLUSTER_ROLES: Resource[Raw] = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, dict)
CLUSTER_ROLE_BINDINGS: Resource[Raw] = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, dict
)
ROLES: Resource[Raw] = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True, dict)
ROLE_BINDINGS: Resource[Raw] = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, dict)
CRDS: Resource[Raw] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, dict, status=True
)
ADMISSION_POLICIES: Resource[Raw] = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    False,
    dict,
    status=True,
)
ADMISSION_POLICY_BINDINGS: Resource[Raw] = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    False,
    dict,
)
