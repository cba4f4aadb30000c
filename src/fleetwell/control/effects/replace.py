"""Orders a machine's replacement from the policy's provider, once, and follows how it goes."""

from __future__ import annotations

from fleetwell.api.resources import INCIDENTS, NODE_HEALTHS, Incident
from fleetwell.control.effects.reach import Outcome, Reach, about_node, live_node, not_yet, why_not_ours
from fleetwell.control.node_view import our_marks
from fleetwell.control.providers import template as provider
from fleetwell.kube.errors import NotFound
from fleetwell.kube.resource import Raw, Resource
from fleetwell.policy.instructions import OrderReplacement
from fleetwell.policy.view import NOT_ORDERED, ReplacementView

POLL = 5.0
"""Seconds between two looks at an order that is not done."""


async def replace(reach: Reach, wanted: OrderReplacement) -> Outcome:
    """Have the replacement ordered under its name, and say how it stands."""
    try:
        kind = provider.resource_of(wanted.template, reach.settings.template_kinds)
    except provider.NotAllowed as error:
        refused = ReplacementView(name=wanted.name, state="Failed", detail=str(error))
        return Outcome(settled=True, detail=str(error), replacement=refused)
    found = await provider.read(reach, kind, wanted.name, wanted.template)
    if found is None and wanted.begin:
        return await _ordered(reach, kind, wanted)
    if found is None:
        # Asked again: an order of ours whose answer was lost may still be on its way.
        return Outcome(settled=False, again=POLL, replacement=ReplacementView(name=wanted.name, state=NOT_ORDERED))
    return _followed(wanted, found)


async def _ordered(reach: Reach, kind: Resource[Raw], wanted: OrderReplacement) -> Outcome:
    node = await live_node(reach, wanted.node, wanted.uid)
    if node is None:
        return Outcome(settled=True, detail=f"{wanted.node} is gone already; nothing was ordered")
    if wanted.boot_id and node.status.node_info.boot_id != wanted.boot_id:
        return not_yet(f"{wanted.node} has booted since its replacement was decided; nothing is ordered", again=2.0)
    if not our_marks(node.metadata.annotations):
        return not_yet(f"{wanted.node} does not wear our mark; its replacement is not ordered", again=5.0)
    known = reach.health_version(wanted.node)
    if known and await _health_version(reach, wanted.node) != known:
        return not_yet(f"{wanted.node} has reported anew since its replacement was decided; deciding again", again=0.5)
    if why := await why_not_ours(reach, wanted.incident, wanted.incident_uid, wanted.attempt):
        return not_yet(f"{why}; the replacement is not ordered", again=5.0)
    made = await provider.order(reach, kind, wanted, await _reason(reach, wanted.incident))
    message = f"Replacement ordered: {kind.kind} {wanted.name}, for Incident {wanted.incident}"
    reach.events.record(about_node(wanted.node, wanted.uid), "ReplacementOrdered", message, warning=True)
    return _followed(wanted, made)


def _followed(wanted: OrderReplacement, found: Raw) -> Outcome:
    spec = found.get("spec") or {}
    if spec.get("nodeUID") != wanted.uid or spec.get("incident") != wanted.incident:
        detail = f"{found.get('kind')} {wanted.name} was made by somebody else for something else; it is left alone"
        return Outcome(
            settled=True, detail=detail, replacement=ReplacementView(name=wanted.name, state="Failed", detail=detail)
        )
    view = provider.state(wanted.name, found, wanted.template)
    return Outcome(settled=view.state != "Ordered", again=POLL, replacement=view, detail=view.detail)


async def _health_version(reach: Reach, node: str) -> str:
    try:
        return (await reach.client.get(NODE_HEALTHS, node)).metadata.resource_version
    except NotFound:
        return ""


async def _reason(reach: Reach, incident: str) -> str:
    """Say in one bounded line what is wrong, for whoever replaces the machine."""
    found: Incident = await reach.client.get(INCIDENTS, incident)
    findings = found.status.findings if found.status else ()
    active = [finding for finding in findings if finding.active] or list(findings)
    return "; ".join(f"{finding.fault} on {finding.component}" for finding in active)[:500] or "see the Incident"
