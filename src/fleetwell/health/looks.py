"""What probes say, and what it means when they say nothing.

A probe that never answered on this machine and is not required is blind: shown, not acted upon. Any other one that
gives no answer is a finding, and leaves what it judges unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from fleetwell.health.catalogue import FaultClass, fault_or_unknown
from fleetwell.health.findings_table import FindingsTable
from fleetwell.health.stimuli import ProbeBlind, ProbeFailed
from fleetwell.health.triage_state import Key, Look, ProbeSettings, TriageState
from fleetwell.health.vocabulary import (
    HOST,
    Component,
    ConditionType,
    FaultName,
    Observation,
    Snapshot,
    Source,
    Verdict,
)

_BAD: Final = frozenset({Verdict.BAD, Verdict.UNKNOWN})
_SILENT: Final = FaultName("ProbeSilent")
_OPTIONAL: Final = ProbeSettings(judges=frozenset(), required=False)


def snapshot_taken(state: TriageState, taken: Snapshot) -> TriageState:
    """Take a completed look in; one of another boot says nothing about this one."""
    if taken.boot_id != state.boot_id:
        return state
    limit = state.settings.max_findings
    found = _worst(taken.probe, taken.observations[:limit])
    table = FindingsTable(state)
    table.overflow += max(0, len(taken.observations) - limit)
    bad = frozenset(fault_or_unknown(one.fault).condition for one in taken.observations if one.verdict in _BAD)
    judged = _judged(state, taken, whole=not bad)
    history = _shifted(state, taken.probe, found, judged)
    for key, one in found.items():
        if key in table.kept or _debounced(key, history[key]):
            table.see(key, one)
    _say_ok(table, state, taken.probe, frozenset(found), judged)
    blind = {name: questions for name, questions in state.blind.items() if name != taken.probe}
    if taken.blind:
        blind[taken.probe] = taken.blind
    look = Look(completed=True, answered=True, bad=bad)
    return msgspec.structs.replace(
        state,
        kept=table.kept,
        overflow=table.overflow,
        history=history,
        looks={**state.looks, taken.probe: look},
        answered=state.answered | {taken.probe},
        blind=blind,
    )


def _worst(probe: str, observations: tuple[Observation, ...]) -> dict[Key, Observation]:
    """Fold what one look says twice of one thing: the worse counts, whichever it said last."""
    found: dict[Key, Observation] = {}
    for one in observations:
        key = _key(probe, one)
        before = found.get(key)
        if before is None or _weight(one) >= _weight(before):
            found[key] = one
    return found


def _weight(one: Observation) -> tuple[int, int]:
    return one.verdict.severity, one.recovery.rank


def probe_failed(state: TriageState, failed: ProbeFailed) -> TriageState:
    """Take in that a probe gave no answer."""
    required = state.settings.probes.get(failed.probe, _OPTIONAL).required
    if failed.probe not in state.answered and not required:
        return msgspec.structs.replace(state, blind={**state.blind, failed.probe: ("neverAnswered",)})
    entry = fault_or_unknown(failed.fault)
    seen = Observation(
        probe=failed.probe,
        fault=failed.fault,
        component=HOST,
        verdict=Verdict.UNKNOWN,
        recovery=entry.recovery,
        at=failed.at,
        evidence=failed.evidence or entry.means,
    )
    key = _key(failed.probe, seen)
    table = FindingsTable(state)
    for other, kept in state.kept.items():
        if other.source is Source.SNAPSHOT and other.probe == failed.probe:
            table.kept[other] = msgspec.structs.replace(kept, oks=0)
    history = _shifted(state, failed.probe, {key: seen}, _is_failure)
    if key in table.kept or _debounced(key, history[key]):
        table.see(key, seen)
    before = state.looks.get(failed.probe)
    look = Look(completed=before is not None and before.completed, answered=False)
    return msgspec.structs.replace(
        state,
        kept=table.kept,
        overflow=table.overflow,
        history=history,
        looks={**state.looks, failed.probe: look},
    )


def probe_blind(state: TriageState, blind: ProbeBlind) -> TriageState:
    """Take in that what a probe asks is not installed: no fault, unless it was there before or has to be."""
    said = blind.evidence or "what it asks is not installed"
    return probe_failed(state, ProbeFailed(probe=blind.probe, fault=_SILENT, at=blind.at, evidence=said))


def unchecked(state: TriageState) -> frozenset[ConditionType]:
    """Give the conditions that no complete look of this boot stands behind."""
    return frozenset(kind for kind in ConditionType if not _checked(state, kind))


def _checked(state: TriageState, kind: ConditionType) -> bool:
    judging = {
        name: probe
        for name, probe in state.settings.probes.items()
        if kind is ConditionType.MONITORING or kind in probe.judges
    }
    looked = {name for name in judging if name in state.looks and state.looks[name].completed}
    required = {name for name, probe in judging.items() if probe.required}
    return required <= looked if required else bool(looked)


def _key(probe: str, seen: Observation) -> Key:
    return Key(seen.fault, seen.component, Source.SNAPSHOT, probe)


def _is_failure(key: Key) -> bool:
    return key.component == HOST and fault_or_unknown(key.fault).fault_class is FaultClass.MONITORING


def _judged(state: TriageState, taken: Snapshot, *, whole: bool) -> Callable[[Key], bool]:
    """Say which findings this look judged.

    That the probe failed, it judges by answering at all. A component that is gone for good (another GPU in its place)
    is judged by a whole look of a later boot that finds the machine complete.
    """
    covered: frozenset[Component] = frozenset(taken.covered)
    complete = whole and HOST in covered

    def judged(key: Key) -> bool:
        if key.component in covered or _is_failure(key):
            return True
        kept = state.kept.get(key)
        return complete and kept is not None and kept.finding.boot_id != state.boot_id

    return judged


def _shifted(
    state: TriageState, probe: str, found: dict[Key, Observation], judged: Callable[[Key], bool]
) -> dict[Key, int]:
    """Add one look to the debounce history of everything that it judged, and forget what has not been seen for long."""
    history = dict(state.history)
    for key in [key for key in history if key.probe == probe and (judged(key) or key in found)]:
        _, of = fault_or_unknown(key.fault).debounce
        history[key] = (history[key] << 1 | (key in found)) & ((1 << of) - 1)
        if not history[key]:
            del history[key]
    for key in found:
        history.setdefault(key, 1)
    return history


def _debounced(key: Key, seen: int) -> bool:
    return seen.bit_count() >= fault_or_unknown(key.fault).debounce[0]


def _say_ok(
    table: FindingsTable, state: TriageState, probe: str, found: frozenset[Key], judged: Callable[[Key], bool]
) -> None:
    for key, kept in list(table.kept.items()):
        if key.source is not Source.SNAPSHOT or key.probe != probe or key in found or not judged(key):
            continue
        if kept.oks + 1 >= state.settings.ok_to_clear:
            del table.kept[key]
        else:
            table.kept[key] = msgspec.structs.replace(kept, oks=kept.oks + 1)
