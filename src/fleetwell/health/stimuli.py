"""What may happen to triage. Each is a value; the time in it is the node's clock, in seconds since the epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from fleetwell.health.conditions import Condition
from fleetwell.health.vocabulary import HOST, BootId, Component, FaultName, Finding, Observation, Recovery, Snapshot


class Event(msgspec.Struct, frozen=True):
    """Things that happened once, all of them in the present boot: kernel-log lines above all."""

    observations: tuple[Observation, ...]
    owners: Mapping[int, str] = {}
    """Pod (or other owner) of the processes named: repetition counts by owner, and by process where none is given.
    Empty: it was looked for and cannot be told, so that it counts for nobody."""


class ProbeFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A probe gave no answer: ``ProbeHung``, ``ProbeCrashed``, ``ProbeNonsense`` or ``ProbeSilent``."""

    probe: str
    fault: FaultName
    at: float
    evidence: str = ""


class ProbeBlind(msgspec.Struct, frozen=True, kw_only=True):
    """A probe found that what it asks is not installed here."""

    probe: str
    at: float
    evidence: str = ""


class NewBoot(msgspec.Struct, frozen=True):
    """The machine has been restarted. Its findings stay until their own rule ends them."""

    boot_id: BootId


class RemedyDone(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy was carried out; a bare proof is one with ``Recovery.NONE``."""

    recovery: Recovery
    component: Component = HOST
    """What it was done to; ``host`` reaches everything on the machine."""
    proof_passed: bool


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier agent of this node published: taken over before the first look, so that nothing moves."""

    boot_id: BootId
    """Boot that the earlier agent saw."""
    findings: tuple[Finding, ...] = ()
    conditions: tuple[Condition, ...] = ()
    answered: frozenset[str] = frozenset()
    """Probes that have ever answered on this machine."""
    events_until: float = -math.inf
    """Events up to this time were judged before: read again from the log's ring they would undo what was cleared."""


class Tick(msgspec.Struct, frozen=True):
    """Time went on."""

    now: float


Stimulus = Event | Snapshot | ProbeFailed | ProbeBlind | NewBoot | RemedyDone | Adopt | Tick
