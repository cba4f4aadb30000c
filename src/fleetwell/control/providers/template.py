"""Has a machine replaced by whoever watches for an object of some kind: a janitor, a ticket system, an operator.

The object has fixed fields and a kind from the allow-list that the controller was started with, so that the author of a
policy cannot have the controller create anything else in his place.
"""

from __future__ import annotations

from typing import Any

from fleetwell.api import GROUP, VERSION
from fleetwell.api.policy import Template
from fleetwell.control.effects.reach import Reach
from fleetwell.control.settings import TemplateKind
from fleetwell.kube.errors import AlreadyExists, NotFound
from fleetwell.kube.resource import Raw, Resource
from fleetwell.policy.instructions import OrderReplacement
from fleetwell.policy.view import ReplacementView


class NotAllowed(Exception):  # noqa: N818 (says what it is)
    """The policy's template has a kind that the controller may not create."""


def resource_of(template: Template, allowed: tuple[TemplateKind, ...]) -> Resource[Raw]:
    """Give the kind of a template.

    :raises NotAllowed: it is not on the allow-list; the message names the flag that puts it there.
    """
    for kind in allowed:
        if (kind.api_version, kind.kind) == (template.api_version, template.kind):
            return kind.resource(namespaced=template.namespace is not None)
    given = ", ".join(f"{kind.api_version}/{kind.kind}" for kind in allowed) or "none"
    raise NotAllowed(
        f"the controller may not create {template.api_version} {template.kind} (allowed: {given}); nothing was "
        f"ordered; start it with --replacement-kind {template.api_version}/{template.kind}, and grant it create and get"
    )


async def read(reach: Reach, kind: Resource[Raw], name: str, template: Template) -> Raw | None:
    """Read the object that was made for a replacement, or None."""
    try:
        return await reach.client.get(kind, name, template.namespace)
    except NotFound:
        return None


async def order(reach: Reach, kind: Resource[Raw], wanted: OrderReplacement, reason: str) -> Raw:
    """Create the object; one that is there already is adopted."""
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Incident",
        "name": wanted.incident,
        "uid": wanted.incident_uid,
    }
    body = {
        "metadata": {
            "name": wanted.name,
            "labels": {"app.kubernetes.io/managed-by": "fleetwell"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": wanted.node,
            "nodeUID": wanted.uid,
            "providerID": wanted.provider_id,
            "incident": wanted.incident,
            "bootID": wanted.boot_id,
            "reason": reason,
        },
    }
    try:
        return await reach.client.create(kind, body, wanted.template.namespace)
    except AlreadyExists:
        return await reach.client.get(kind, wanted.name, wanted.template.namespace)


def state(name: str, found: Raw, template: Template) -> ReplacementView:
    """Read how it went from the field that the policy names."""
    value: Any = found
    for part in template.done.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ReplacementView(name=name, state="Ordered", detail=f"{template.done} is not set yet")
    said = str(value)[:200]
    detail = f"{template.done} says {said}"
    if said in template.succeeded:
        return ReplacementView(name=name, state="Succeeded", detail=detail)
    if said in template.failed:
        return ReplacementView(name=name, state="Failed", detail=detail)
    return ReplacementView(name=name, state="Ordered", detail=detail)
