"""What an effect acts with, what it gives back, and the live reads that all of them begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fleetwell.api import GROUP, VERSION
from fleetwell.api.resources import INCIDENTS, Incident
from fleetwell.control.settings import Clock, Settings
from fleetwell.kube.client import Client
from fleetwell.kube.errors import NotFound
from fleetwell.kube.objects import Node, ObjectReference
from fleetwell.kube.resource import NODES
from fleetwell.policy.case import OPEN_RESULTS
from fleetwell.policy.commands import in_force
from fleetwell.policy.view import PodsView, ReplacementView


class Recorder(Protocol):
    """Takes Events; :class:`fleetwell.kube.recorder.EventRecorder` is one."""

    def record(self, about: ObjectReference, reason: str, message: str, *, warning: bool = False) -> None:
        """Note an event; never raises, never waits."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The hands of the effects. ``client`` asks the fence before it changes anything."""

    client: Client
    events: Recorder
    clock: Clock
    settings: Settings
    epoch: int
    """Number of this leader's term; an Incident written by a later one is not ours to act upon."""
    health_version: Callable[[str], str] = lambda _node: ""
    """The resourceVersion of a node's NodeHealth as the decisions knew it; empty when they knew none."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an effect left things."""

    settled: bool
    """What was wanted is true, and stays so until something changes."""
    again: float = 0.0
    """Seconds after which an effect that is not settled should be run again."""
    detail: str = ""
    pods: PodsView | None = None
    replacement: ReplacementView | None = None


SETTLED = Outcome(settled=True)


def not_yet(detail: str, again: float = 5.0) -> Outcome:
    """Say why it is not done, and when to try again."""
    return Outcome(settled=False, again=again, detail=detail)


async def live_node(reach: Reach, name: str, uid: str) -> Node | None:
    """Read the node; None when it is gone, or another has its name."""
    try:
        node = await reach.client.get(NODES, name)
    except NotFound:
        return None
    return node if node.metadata.uid == uid else None


async def why_not_ours(reach: Reach, name: str, uid: str, attempt: int | None = None) -> str:
    """Say why the incident does not ask for anything, or for this attempt, of us any more; empty when it does."""
    try:
        incident: Incident = await reach.client.get(INCIDENTS, name)
    except NotFound:
        return f"Incident {name} is gone"
    if uid and incident.metadata.uid != uid:
        return f"another Incident has the name {name}"
    if incident.status is None or incident.status.phase.ended:
        return f"Incident {name} is over"
    if incident.status.epoch > reach.epoch:
        return f"Incident {name} belongs to a later leader (epoch {incident.status.epoch}, ours is {reach.epoch})"
    under_way = [it.number for it in incident.status.attempts if it.result in OPEN_RESULTS]
    if attempt is not None and attempt not in under_way:
        return f"attempt {attempt} of Incident {name} is not under way any more"
    hold = in_force(incident.spec, incident.status)
    return f"{hold.by} holds Incident {name}" if hold is not None else ""


def about_node(name: str, uid: str) -> ObjectReference:
    """Point an Event at a node."""
    return ObjectReference(api_version="v1", kind="Node", name=name, uid=uid)


def about_incident(name: str, uid: str) -> ObjectReference:
    """Point an Event at an incident."""
    return ObjectReference(api_version=f"{GROUP}/{VERSION}", kind="Incident", name=name, uid=uid)
