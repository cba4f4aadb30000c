"""The state of triage: findings with what is needed to end them, what probes said last, and bounded windows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from fleetwell.health.conditions import Condition
from fleetwell.health.vocabulary import (
    BootId,
    Component,
    ConditionType,
    FaultName,
    Finding,
    Recovery,
    Source,
)

EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe is to triage."""

    judges: frozenset[ConditionType]
    """Conditions that are not True before this probe has looked, nor while it does not answer."""
    required: bool = True
    """Whether its silence counts although it never answered on this machine."""


class TriageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of triage."""

    probes: Mapping[str, ProbeSettings] = EMPTY
    ok_to_clear: int = 2
    """How often the same probe must say OK before its finding ends."""
    burst_s: float = 30.0
    """Lines of one event on one GPU come within this: channels are torn down seconds after their cause."""
    repetition_count: int = 3
    """Different owners with the same application fault in the same place make it a suspicion."""
    repetition_window_s: float = 86_400.0
    max_findings: int = 256


class Key(NamedTuple):
    """What makes a finding one finding. Events and snapshots are apart, and so are the looks of different probes."""

    fault: FaultName
    component: Component
    source: Source
    probe: str
    """Empty for events: which reader saw a kernel line does not matter."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, and what decides about its end and about what joins it."""

    finding: Finding
    xids: frozenset[int] = frozenset()
    inferred_from: int | None = None
    """Number of the Xid that another line named as its cause, while that line itself was not seen."""
    advised: bool = False
    """Whether the driver's own advice (Xid 154) is in its recovery."""
    unadvised: Recovery = Recovery.NONE
    """What it asks for without that advice."""
    explained: tuple[tuple[Key, Kept], ...] = ()
    """What is hidden in the driver's advice because the advice explains it well enough."""
    secondary: bool = False
    """Whether all that was seen of it says of itself that it is the consequence of another error."""
    oks: int = 0
    """How often its probe has said OK since it saw it last."""
    done: Recovery = Recovery.NONE
    """The strongest remedy carried out since it was seen last."""
    adopted: bool = False
    anchor: float = 0.0
    """When its time began to run, for findings that end by time: safe against a clock that steps back."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe did in this boot."""

    completed: bool
    """Whether it has ever completed a look in this boot."""
    answered: bool
    """Whether its latest try gave an answer."""
    bad: frozenset[ConditionType] = frozenset()
    """Conditions against which its latest look found something, debounced or not."""


class RepetitionKey(NamedTuple):
    """Where an application fault repeats."""

    gpu: str
    xid: int
    unit: str


class TriageState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that triage knows. Make one with :func:`fleetwell.health.triage.initial`."""

    boot_id: BootId
    settings: TriageSettings
    now: float = 0.0
    kept: Mapping[Key, Kept] = EMPTY
    looks: Mapping[str, Look] = EMPTY
    answered: frozenset[str] = frozenset()
    history: Mapping[Key, int] = EMPTY
    """Debounce: one bit per look, the latest lowest, of what was seen in it."""
    repetitions: Mapping[RepetitionKey, tuple[tuple[str, float], ...]] = EMPTY
    blind: Mapping[str, tuple[str, ...]] = EMPTY
    """Probes and questions that this machine cannot answer: shown, not acted upon."""
    adopted: Mapping[ConditionType, Condition] = EMPTY
    events_until: float = -math.inf
    overflow: int = 0
    """Findings that had no room since the machine started."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What one step did to the findings."""

    opened: tuple[Finding, ...] = ()
    changed: tuple[Finding, ...] = ()
    """Another verdict, recovery or suspicion."""
    counted: tuple[Finding, ...] = ()
    """Seen again, nothing else."""
    closed: tuple[Finding, ...] = ()
    """Ended by their rule, or joined with their root."""

    def __bool__(self) -> bool:
        """Whether anything changed that is more than a count."""
        return bool(self.opened or self.changed or self.closed)


def device_of(component: Component) -> str:
    """Give what groups components of one device: a GPU and its NVLinks are one."""
    kind, _, rest = component.partition("/")
    return rest.rpartition("/")[0] if kind == "nvlink" else rest if kind == "gpu" else component


def change_between(old: Mapping[Key, Kept], new: Mapping[Key, Kept]) -> Change:
    """Compare the findings before and after a step."""
    opened: list[Finding] = []
    changed: list[Finding] = []
    counted: list[Finding] = []
    for key, kept in new.items():
        before = old.get(key)
        if before is None:
            opened.append(kept.finding)
        elif before.finding is not kept.finding and before.finding != kept.finding:
            (changed if _weight(before.finding) != _weight(kept.finding) else counted).append(kept.finding)
    return Change(
        opened=tuple(opened),
        changed=tuple(changed),
        counted=tuple(counted),
        closed=tuple(kept.finding for key, kept in old.items() if key not in new),
    )


def _weight(finding: Finding) -> tuple[object, ...]:
    return (finding.verdict, finding.recovery, finding.suspected, finding.boot_id)
