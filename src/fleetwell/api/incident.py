"""Incident: one episode of one node, from the first finding to its end. The controller's only memory of it."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from fleetwell.api.fields import Time, wire
from fleetwell.api.node_health import Machine
from fleetwell.api.policy import Remedy
from fleetwell.health.vocabulary import Recovery, Verdict


class Phase(enum.StrEnum):
    """States of the ladder. Each has a deadline and an exit."""

    TOLERATING = "Tolerating"
    SUSPECTED = "Suspected"
    MAINTENANCE = "Maintenance"
    HELD = "Held"
    """A person holds it."""
    QUARANTINED = "Quarantined"
    DRAINING = "Draining"
    REMEDYING = "Remedying"
    PROVING = "Proving"
    NEEDS_PERSON = "NeedsPerson"
    RELEASED = "Released"
    CLEARED = "Cleared"
    REPLACED = "Replaced"
    GONE = "Gone"
    VETOED = "Vetoed"

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self in {Phase.RELEASED, Phase.CLEARED, Phase.REPLACED, Phase.GONE, Phase.VETOED}


class IncidentKind(enum.StrEnum):
    """Why the episode was opened: a fault, or a new node that has to prove itself before it takes work."""

    REPAIR = "Repair"
    ADMISSION = "Admission"


class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """A part of an Incident."""


class Command(_Struct, frozen=True, kw_only=True):
    """A person's word. ``by`` must be the user who writes it; an admission policy sees to that."""

    by: str
    at: Time
    reason: str = ""


class IncidentSpec(_Struct, frozen=True, kw_only=True):
    """Spec of an Incident: what it is about, fixed when it was opened, and what people say of it."""

    kind: IncidentKind
    node_name: str
    node_uid: str
    policy: str
    hold: Command | None = None
    """Do nothing further until this is taken away."""
    approve: Command | None = None
    """Go on although it waits for a person."""
    release: Command | None = None
    """Give the node back to work now, whatever is found."""
    retry: Command | None = None
    """Begin the ladder again, with its attempts forgotten."""


class IncidentFinding(_Struct, frozen=True, kw_only=True):
    """What was found, as the episode remembers it after the node has forgotten it."""

    fault: str
    component: str
    verdict: Verdict
    recovery: Recovery
    evidence: str = ""
    boot_id: str = ""
    first_seen: Time | None = None
    active: bool = True
    """Whether the node says it now."""
    suspected: bool = False
    """Only repetition speaks against the hardware: no new work there, and running work stays until it ends."""


class AttemptResult(enum.StrEnum):
    """How an attempt went."""

    INTENDED = "Intended"
    """Written down, and about to be begun."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNCERTAIN = "Uncertain"
    CANCELLED = "Cancelled"


class Attempt(_Struct, frozen=True, kw_only=True):
    """One try of one rung. Its objects in the cluster have a name made from the incident's UID and this number."""

    number: int
    remedy: Remedy
    started_at: Time
    deadline: Time
    expected_boot_id: str = ""
    result: AttemptResult = AttemptResult.INTENDED
    ended_at: Time | None = None
    detail: str = ""
    component: str = ""


class ProofRun(_Struct, frozen=True, kw_only=True):
    """One proof of this episode."""

    number: int
    started_at: Time
    deadline: Time
    expected_boot_id: str
    passed: bool | None = None
    detail: str = ""


class Drain(_Struct, frozen=True, kw_only=True):
    """How the drain stands."""

    started_at: Time
    deadline: Time
    remaining: int = -1
    """Pods that still have to go; -1 when they have not been counted yet."""
    blocked_by: str = ""
    """What holds the drain up: pod, budget, owner."""
    finished_at: Time | None = None


class Hold(_Struct, frozen=True, kw_only=True):
    """A decision not to act now."""

    reason: str
    """``Budget``, ``Pace``, ``Person``, ``DryRun``, ``Paused``, ``Precondition``, ``PolicyTie`` …"""
    message: str
    since: Time
    look_again_at: Time


class Next(_Struct, frozen=True, kw_only=True):
    """What comes next, and when."""

    step: str
    at: Time


class Said(_Struct, frozen=True, kw_only=True):
    """One decision in words."""

    at: Time
    text: str


class Timeline(_Struct, frozen=True, kw_only=True):
    """When each stage was first reached."""

    opened: Time
    quarantined: Time | None = None
    drained: Time | None = None
    remedied: Time | None = None
    proved: Time | None = None
    ended: Time | None = None


class QuarantineMark(_Struct, frozen=True, kw_only=True):
    """Our mark on the node."""

    by: Literal["Taint", "Cordon"]
    seen: bool = False
    """Whether the mark was seen on this node UID: only then can its absence be somebody's veto."""
    put_back: int = 0
    """How often it was put back after a controller or the kubelet had taken it away."""


class IncidentStatus(_Struct, frozen=True, kw_only=True):
    """Status of an Incident, written by the controller alone."""

    phase: Phase
    since: Time
    """When this phase began."""
    timeline: Timeline
    policy_generation: int = 0
    pool: str = ""
    machine: Machine = Machine()
    boot_id: str = ""
    """The boot on which the episode's evidence was seen last."""
    bad_seconds: float = 0.0
    """How long the node has been bad, added up over the episode: a fault that flaps does not escape."""
    counted_at: Time | None = None
    """Since when the node is bad without a break, not yet in ``badSeconds``; None while it is not bad."""
    quiet_since: Time | None = None
    recovery: Recovery = Recovery.NONE
    """The strongest recovery asked for."""
    findings: tuple[IncidentFinding, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    retry_from: int = 0
    """Attempts up to this number are forgotten, by a person's ``retry``."""
    proofs: tuple[ProofRun, ...] = ()
    drain: Drain | None = None
    quarantine: QuarantineMark | None = None
    next: Next | None = None
    hold: Hold | None = None
    decisions: tuple[Said, ...] = ()
    """The last 20, oldest first."""
    summary: str = ""
    """One line for ``kubectl get``."""
    epoch: int = 0
    """The leader that wrote it: a new one rewrites every open Incident, so that a late write of the old one fails."""
    handled: tuple[str, ...] = ()
    """Commands already carried out, as ``name@time``."""
    interrupted: Phase | None = None
    """The phase that a person's hold or others' maintenance interrupted, and that comes back after it."""
    target_nodes: int = 0
    """Nodes the pool had when a replacement was ordered: its capacity is back when it has as many again."""
