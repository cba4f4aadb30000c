"""What the deciding code wants: requests, which need budget or pace, and instructions, which are carried out.

Instructions are not commands given once: they are what must be true of the cluster for an episode as it stands, worked
out anew in every pass. An effect that was lost or done twice is therefore the same as one done once.
"""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass

from fleetwell.api.incident import Hold
from fleetwell.api.node_operation import NodeOperationSpec
from fleetwell.api.policy import DrainRule, QuarantineBy, Remedy, Template


class RequestKind(enum.StrEnum):
    """What needs leave. Quarantine and drain take capacity away; a remedy occupies a place in the pace."""

    QUARANTINE = "Quarantine"
    REMEDY = "Remedy"


@dataclass(frozen=True, kw_only=True)
class Request:
    """An episode's wish to go on, to be admitted by budget and pace."""

    kind: RequestKind
    episode: str
    node: str
    pool: str
    since: dt.datetime
    """Since when it waits: the longest wait is served first."""
    remedy: Remedy | None = None


@dataclass(frozen=True, kw_only=True)
class Granted:
    """The request may go on."""


Answer = Granted | Hold


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """The node must wear our mark, and where ``reserve`` is set the marks that keep other repairers away."""

    node: str
    uid: str
    by: QuarantineBy
    incident: str
    reserve: bool


@dataclass(frozen=True, kw_only=True)
class Restore:
    """None of our marks may be on the node: taint, cordon of ours, unproven taint, reservation."""

    node: str
    uid: str
    incident: str


@dataclass(frozen=True, kw_only=True)
class DrainNode:
    """The node's pods must go, by eviction."""

    node: str
    uid: str
    incident: str
    rule: DrainRule
    deadline: dt.datetime


@dataclass(frozen=True, kw_only=True)
class Operate:
    """This NodeOperation must exist and the agent's doorbell must name it."""

    name: str
    incident: str
    incident_uid: str
    spec: NodeOperationSpec
    attempt: int | None = None
    """The attempt that it carries out, which must be open; None for a proof."""


@dataclass(frozen=True, kw_only=True)
class CancelOperation:
    """This NodeOperation must not start; one that runs already is left to end."""

    name: str


@dataclass(frozen=True, kw_only=True)
class OrderReplacement:
    """The provider must have been asked to replace the machine, under this name."""

    name: str
    attempt: int
    begin: bool
    """False: it is only looked whether it was ordered, and how it goes."""
    node: str
    uid: str
    provider_id: str
    incident: str
    incident_uid: str
    boot_id: str
    template: Template


@dataclass(frozen=True, kw_only=True)
class RestartPods:
    """The pods that use the component must be ended, so that their owners make them again elsewhere or here."""

    node: str
    uid: str
    incident: str
    component: str
    started_before: dt.datetime | None = None
    """Only pods that started before this: those that were made again since are left alone."""


Instruction = Quarantine | Restore | DrainNode | Operate | CancelOperation | OrderReplacement | RestartPods
