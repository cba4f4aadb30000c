"""The bodies and parameters of requests that are more than an object or a patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True)
class BoundTo:
    """The object with which a token ends: a ``Pod`` or, from Kubernetes 1.32, a ``Node``."""

    kind: str
    name: str
    uid: str


class _TokenStatus(msgspec.Struct):
    token: str


class TokenAnswer(msgspec.Struct):
    """What the server answers to a TokenRequest."""

    status: _TokenStatus


def selection(
    label_selector: str = "", field_selector: str = "", resource_version: str | None = None
) -> dict[str, str]:
    """Make the query of a list or watch."""
    return present(
        labelSelector=label_selector or None, fieldSelector=field_selector or None, resourceVersion=resource_version
    )


def delete_options(
    uid: str | None, resource_version: str | None, grace_period_seconds: int | None, propagation_policy: str | None
) -> bytes:
    """Make a DELETE's body, with preconditions where they are given."""
    return msgspec.json.encode(
        present(
            kind="DeleteOptions",
            apiVersion="v1",
            preconditions=present(uid=uid, resourceVersion=resource_version) or None,
            gracePeriodSeconds=grace_period_seconds,
            propagationPolicy=propagation_policy,
        )
    )


def eviction(pod_name: str, namespace: str, uid: str, *, dry_run: bool) -> bytes:
    """Make an Eviction of one pod and no later one of the same name."""
    return msgspec.json.encode(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod_name, "namespace": namespace},
            "deleteOptions": present(preconditions={"uid": uid}, dryRun=["All"] if dry_run else None),
        }
    )


def token_request(bound_to: BoundTo | None, audiences: Sequence[str], expiration_seconds: int) -> bytes:
    """Make a TokenRequest; without audiences the server takes its own."""
    bound = bound_to and {"apiVersion": "v1", "kind": bound_to.kind, "name": bound_to.name, "uid": bound_to.uid}
    return msgspec.json.encode(
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": present(
                audiences=list(audiences) or None, expirationSeconds=expiration_seconds, boundObjectRef=bound
            ),
        }
    )


def present(**fields: Any) -> dict[str, Any]:
    """Leave out what is None, which the API takes as absent."""
    return {key: value for key, value in fields.items() if value is not None}
