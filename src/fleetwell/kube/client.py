"""Typed requests to the API server. Nothing else in fleetwell speaks HTTP to it."""

from __future__ import annotations

import copy
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

import msgspec

from fleetwell.kube import bodies
from fleetwell.kube.bodies import BoundTo
from fleetwell.kube.errors import Undecodable
from fleetwell.kube.reader import Reader, decoded
from fleetwell.kube.resource import PODS, SERVICE_ACCOUNTS, Raw, Resource
from fleetwell.kube.transport import Fence

__all__ = ["BoundTo", "Client", "Fence", "PatchKind"]

T = TypeVar("T")


class PatchKind(enum.Enum):
    """How a patch's body is meant; the value is its content type."""

    STRATEGIC = "application/strategic-merge-patch+json"
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Client(Reader):
    """One API server, one identity. Use inside ``async with``.

    Every method raises ``KubeError``. ``timeout`` bounds one attempt, at the client and (when something may change)
    at the server. ``fenced_by`` and ``without_retries`` give views that share the connections.
    """

    def fenced_by(self, fence: Fence) -> Self:
        """Give a view whose mutating requests ask ``fence`` first."""
        view = copy.copy(self)
        view.fence = fence
        return view

    async def create(
        self, resource: Resource[T], obj: T | Raw, namespace: str | None = None, *, timeout: float | None = None
    ) -> T:
        """Create an object; ``AlreadyExists`` when its name is taken."""
        what = f"CREATE {resource.describe(namespace, _name(obj) or '(generated name)')}"
        body = resource.encode(obj)
        return decoded(
            resource, what, await self._send("POST", resource.path(namespace), what, body=body, timeout=timeout)
        )

    async def replace(
        self,
        resource: Resource[T],
        obj: T | Raw,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        timeout: float | None = None,
    ) -> T:
        """Write an object (or its status) whole; ``Conflict`` when it carries an old resourceVersion.

        Raises:
            TypeError: the struct holds only part of the object's fields, so the rest would be erased.
        """
        if resource.partial and not isinstance(obj, dict):
            msg = f"{resource.kind} structs hold only part of the object: patch it instead of replacing it"
            raise TypeError(msg)
        name = _name(obj)
        what = f"PUT {resource.describe(namespace, name)}{_slash(subresource)}"
        path = resource.path(namespace, name, subresource)
        body = resource.encode(obj)
        return decoded(resource, what, await self._send("PUT", path, what, body=body, timeout=timeout))

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        kind: PatchKind = PatchKind.STRATEGIC,
        namespace: str | None = None,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        timeout: float | None = None,
    ) -> T:
        """Change part of an object. With ``metadata.resourceVersion`` in the body it is an optimistic lock.

        Raises:
            ValueError: the form does not fit the kind or the body.
        """
        what = f"PATCH {resource.describe(namespace, name)}{_slash(subresource)}"
        if kind is PatchKind.STRATEGIC and resource.custom:
            msg = f"{what}: custom resources take no strategic merge patch; use PatchKind.MERGE or APPLY"
            raise ValueError(msg)
        if kind is PatchKind.APPLY and field_manager is None:
            msg = f"{what}: server-side apply needs a field manager"
            raise ValueError(msg)
        params = {"fieldManager": field_manager} if field_manager else {}
        if force:
            params["force"] = "true"
        if kind is PatchKind.APPLY and isinstance(body, Mapping):
            body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        answer = await self._send(
            "PATCH",
            resource.path(namespace, name, subresource),
            what,
            params=params,
            body=msgspec.json.encode(body),
            content_type=kind.value,
            timeout=timeout,
        )
        return decoded(resource, what, answer)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation_policy: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Delete an object; ``Conflict`` when it is not the one with this UID and resourceVersion any more."""
        what = f"DELETE {resource.describe(namespace, name)}"
        options = bodies.delete_options(uid, resource_version, grace_period_seconds, propagation_policy)
        path = resource.path(namespace, name)
        await self._send("DELETE", path, what, body=options, timeout=timeout)

    async def evict(
        self, pod_name: str, namespace: str, *, uid: str, dry_run: bool = False, timeout: float | None = None
    ) -> None:
        """Ask for a pod to go, within PodDisruptionBudgets.

        ``NotFound`` and ``Conflict`` mean that this pod is gone; ``TooManyRequests.disruption_budget`` that a budget
        forbids it now; ``ServerError.multiple_budgets`` that it never will while two budgets select the pod.
        """
        what = f"EVICT {PODS.describe(namespace, pod_name)}"
        body = bodies.eviction(pod_name, namespace, uid, dry_run=dry_run)
        params = {"dryRun": "All"} if dry_run else {}
        path = PODS.path(namespace, pod_name, "eviction")
        await self._send("POST", path, what, params=params, body=body, timeout=timeout)

    async def create_token(
        self,
        service_account: str,
        namespace: str,
        *,
        bound_to: BoundTo | None = None,
        audiences: Sequence[str] = (),
        expiration_seconds: int = 3600,
        timeout: float | None = None,
    ) -> str:
        """Have a service account's token made, ending with ``bound_to`` where that is given."""
        what = f"CREATE token of {SERVICE_ACCOUNTS.describe(namespace, service_account)}"
        body = bodies.token_request(bound_to, audiences, expiration_seconds)
        path = SERVICE_ACCOUNTS.path(namespace, service_account, "token")
        answer = await self._send("POST", path, what, body=body, timeout=timeout)
        try:
            return msgspec.json.decode(answer, type=bodies.TokenAnswer).status.token
        except msgspec.DecodeError as error:
            msg = f"{what}: the answer holds no token: {error}"
            raise Undecodable(msg) from error


def _name(obj: Any) -> str:
    if isinstance(obj, dict):
        return str(obj.get("metadata", {}).get("name", ""))
    return str(obj.metadata.name)


def _slash(subresource: str | None) -> str:
    return f"/{subresource}" if subresource else ""
