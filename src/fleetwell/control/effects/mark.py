"""Our marks on a node: put there for an incident, and taken away again without touching anybody else's.

Taint, cordon and annotations are shared fields. Each change is a read, a change in memory and a write that fails when
the node has changed meanwhile; and only what our own annotation says that we put is ever removed: a merge patch
replaces the whole list of taints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleetwell.api.policy import QuarantineBy
from fleetwell.control.effects.reach import SETTLED, Outcome, Reach, about_node, live_node, not_yet
from fleetwell.control.node_view import CORDON_MARK, MARKED_FOR, MARKS, TAINT_MARK, our_marks
from fleetwell.control.settings import MANAGER
from fleetwell.control.wire import rfc3339
from fleetwell.kube.client import PatchKind
from fleetwell.kube.errors import Conflict, NotFound
from fleetwell.kube.objects import Node, Taint
from fleetwell.kube.resource import NODES
from fleetwell.policy.instructions import Quarantine, Restore
from fleetwell.policy.view import QUARANTINE_TAINT, RESERVED_MARKS, UNPROVEN_TAINT

TRIES = 5
"""A node's kubelet and others write it too; more conflicts than this in a row are looked at in the next pass."""


@dataclass(kw_only=True)
class _Change:
    """A node's shared fields as they should be."""

    taints: list[Taint]
    unschedulable: bool
    annotations: dict[str, str | None] = field(default_factory=dict)
    """Only those that change; None takes one away."""

    def patch(self, node: Node) -> dict[str, Any]:
        """Make the merge patch from the node as it was read; empty when nothing changes."""
        body: dict[str, Any] = {}
        spec: dict[str, Any] = {}
        if self.taints != node.spec.taints:
            spec["taints"] = [_taint(taint) for taint in self.taints] or None
        if self.unschedulable != node.spec.unschedulable:
            spec["unschedulable"] = self.unschedulable or None
        changed = {key: value for key, value in self.annotations.items() if node.metadata.annotations.get(key) != value}
        if spec:
            body["spec"] = spec
        if not spec and not changed:
            return {}
        meta = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
        return body | {"metadata": meta | ({"annotations": changed} if changed else {})}


async def quarantine(reach: Reach, wanted: Quarantine) -> Outcome:
    """Put our mark on the node, and the reservation where it is asked for."""
    for _ in range(TRIES):
        node = await live_node(reach, wanted.node, wanted.uid)
        if node is None:
            return SETTLED
        change = _quarantined(node, wanted, rfc3339(reach.clock.now()))
        if (patch := change.patch(node)) and not await _written(reach, wanted.node, patch):
            continue
        if "spec" in patch:
            with_what = f"taint {QUARANTINE_TAINT}" if wanted.by is QuarantineBy.TAINT else "cordon"
            message = f"No new work on this node ({with_what}) while Incident {wanted.incident} is open"
            reach.events.record(about_node(wanted.node, wanted.uid), "Quarantined", message, warning=True)
        return SETTLED
    return not_yet(f"{wanted.node} keeps changing while our mark is put on it; it is left as it was", again=1.0)


async def restore(reach: Reach, wanted: Restore) -> Outcome:
    """Take our marks off the node, unless they stand there for another incident by now."""
    for _ in range(TRIES):
        node = await live_node(reach, wanted.node, wanted.uid)
        if node is None:
            return SETTLED
        marked_for = node.metadata.annotations.get(MARKED_FOR, wanted.incident)
        if marked_for != wanted.incident:
            return Outcome(settled=True, detail=f"the marks on {wanted.node} are those of Incident {marked_for}")
        change = _restored(node)
        if (patch := change.patch(node)) and not await _written(reach, wanted.node, patch):
            continue
        if patch:
            message = f"Given back to work by Incident {wanted.incident}"
            if node.spec.unschedulable and change.unschedulable:
                message += "; the cordon on it is not ours and stays"
            reach.events.record(about_node(wanted.node, wanted.uid), "Restored", message)
        return SETTLED
    return not_yet(f"{wanted.node} keeps changing while our marks are taken off; it is left as it was", again=1.0)


def _quarantined(node: Node, wanted: Quarantine, now: str) -> _Change:
    ours = set(our_marks(node.metadata.annotations))
    taints = list(node.spec.taints)
    unschedulable = node.spec.unschedulable
    annotations: dict[str, str | None] = {}
    tainted = any(taint.key == QUARANTINE_TAINT for taint in taints)
    if wanted.by is QuarantineBy.TAINT:
        if not tainted:
            taints.append(Taint(key=QUARANTINE_TAINT, effect="NoSchedule", time_added=now))
        ours.add(TAINT_MARK)
        if CORDON_MARK in ours:
            ours.discard(CORDON_MARK)
            unschedulable = False
    else:
        if not unschedulable:
            unschedulable = True
            ours.add(CORDON_MARK)
        if tainted:
            taints = [taint for taint in taints if taint.key != QUARANTINE_TAINT]
        ours.discard(TAINT_MARK)
    for mark in RESERVED_MARKS:
        present = mark in node.metadata.annotations
        if wanted.reserve and not present:
            annotations[mark] = "true"
            ours.add(mark)
        elif not wanted.reserve and mark in ours:
            annotations[mark] = None
            ours.discard(mark)
    annotations[MARKS] = ",".join(sorted(ours)) or None
    annotations[MARKED_FOR] = wanted.incident
    return _Change(taints=taints, unschedulable=unschedulable, annotations=annotations)


def _restored(node: Node) -> _Change:
    ours = our_marks(node.metadata.annotations)
    taints = [taint for taint in node.spec.taints if taint.key not in {QUARANTINE_TAINT, UNPROVEN_TAINT}]
    annotations: dict[str, str | None] = {mark: None for mark in RESERVED_MARKS if mark in ours}
    annotations |= {MARKS: None, MARKED_FOR: None}
    unschedulable = node.spec.unschedulable and CORDON_MARK not in ours
    return _Change(taints=taints, unschedulable=unschedulable, annotations=annotations)


async def _written(reach: Reach, name: str, patch: dict[str, Any]) -> bool:
    """Write with the optimistic lock; False when the node had changed, so that it must be read again."""
    try:
        await reach.client.patch(NODES, name, patch, kind=PatchKind.MERGE, field_manager=MANAGER)
    except (Conflict, NotFound):
        return False
    return True


def _taint(taint: Taint) -> dict[str, str]:
    body = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    if taint.time_added:
        body["timeAdded"] = taint.time_added
    return {key: value for key, value in body.items() if value}
