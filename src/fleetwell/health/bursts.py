"""Tells consequence from cause: the lines of one event on one GPU become one finding, named by its root.

A fault on a GPU makes the driver write several codes within seconds. 45 is only ever a consequence; a line may name its
cause; 154 says what the driver wants done and has the last word over the generic advice of the code before it; one
memory error is told by several codes. See ``xid_bursts.toml``.
"""

from __future__ import annotations

import tomllib
from typing import Any, Final

import msgspec

from fleetwell.health.catalogue import fault_or_unknown, for_xid, read_data
from fleetwell.health.findings_table import FindingsTable
from fleetwell.health.triage_state import Kept, Key
from fleetwell.health.vocabulary import Observation, Recovery, Source, Verdict, strongest

_DATA: Final[dict[str, Any]] = tomllib.loads(read_data("xid_bursts.toml"))
_MEMORY: Final[tuple[int, ...]] = tuple(_DATA["memory"])
_CONSEQUENCES: Final[frozenset[int]] = frozenset(_DATA["consequences"])
_ADVICE: Final = 154

REPETITION_BY_UNIT: Final[dict[int, bool]] = {int(xid): by == "unit" for xid, by in _DATA["repetition"].items()}
"""Codes whose repetition is a suspicion, and whether they count by unit."""


def event_key(seen: Observation) -> Key:
    """Give the key of an event's own finding."""
    return Key(seen.fault, seen.component, Source.EVENT, "")


def see_event(table: FindingsTable, seen: Observation, burst_s: float, times: int = 1) -> Key | None:
    """Take an event in that came so many times in a row, as a finding of its own or as a part of its root's.

    Gives the key of the finding that it is in now; None when there was no room.
    """
    key = event_key(seen)
    known = table.kept.get(key)
    if known is not None and seen.caused_by is None and seen.xid in known.xids and seen.xid not in _CONSEQUENCES:
        # The flood: the same code in the same place again. What stood near it has been joined already.
        table.see(key, seen, times)
        if seen.xid != _ADVICE:
            return key
    near = [(other, kept) for other, kept in table.near(seen, burst_s) if other != key]
    root = _root_of(seen, key, near)
    if root is not None:
        table.join(root, seen)
        return root
    if seen.xid == _ADVICE:
        return _advise(table, key, seen, near)
    stronger = _stronger_memory_error(seen, near)
    if stronger is not None:
        table.join(stronger, seen)
        return stronger
    if not table.see(key, seen, times):
        return None
    _gather(table, key, seen, near)
    return key if key in table.kept else None


def _root_of(seen: Observation, key: Key, near: list[tuple[Key, Kept]]) -> Key | None:
    """Find the finding that this one is only the consequence of."""
    if seen.caused_by is not None:
        return next((other for other, kept in near if seen.caused_by in kept.xids), None)
    if seen.xid not in _CONSEQUENCES:
        return None
    roots = [(other, kept) for other, kept in near if kept.xids and not kept.xids <= _CONSEQUENCES]
    roots = [(other, kept) for other, kept in roots if kept.finding.verdict is not Verdict.OK and other != key]
    return max(roots, key=_weight)[0] if roots else None


def _advise(table: FindingsTable, key: Key, seen: Observation, near: list[tuple[Key, Kept]]) -> Key | None:
    """Take the driver's own advice: into the fault that it is about, else as a finding of its own."""
    understood = not fault_or_unknown(seen.fault).unintelligible
    roots = [(other, kept) for other, kept in near if _can_be_advised(kept)]
    if understood and roots:
        root, kept = max(roots, key=_weight)
        table.join(root, seen)
        table.kept[root] = _advised(table.kept[root], seen.recovery, alone=len(roots) == 1)
        if key in table.kept:
            table.absorb(root, key)
        return root
    if key not in table.kept and not table.see(key, seen):
        return None
    if understood:
        for other, kept in near:
            if _is_riddle(kept):
                table.absorb(key, other)
    return key


def _can_be_advised(kept: Kept) -> bool:
    finding = kept.finding
    entry = fault_or_unknown(finding.fault)
    return (
        finding.verdict is Verdict.BAD
        and entry.touches_node
        and not entry.unintelligible
        and kept.xids != frozenset({_ADVICE})
    )


def _is_riddle(kept: Kept) -> bool:
    """Whether it is a code that only the vendor could explain: the driver's advice explains it well enough."""
    return fault_or_unknown(kept.finding.fault).unintelligible and kept.xids != frozenset({_ADVICE})


def _advised(kept: Kept, advice: Recovery, *, alone: bool) -> Kept:
    """Put the driver's advice over generic advice; over our own choices and earlier advice only when it is stronger."""
    own = kept.finding.recovery
    generic = alone and not kept.advised and all(not for_xid(xid).departure for xid in kept.xids)
    asked = [advice, fault_or_unknown(kept.finding.fault).least] + ([] if generic else [own])
    finding = msgspec.structs.replace(kept.finding, recovery=strongest(asked))
    return msgspec.structs.replace(kept, finding=finding, advised=True)


def _stronger_memory_error(seen: Observation, near: list[tuple[Key, Kept]]) -> Key | None:
    if seen.xid not in _MEMORY:
        return None
    tellings = [(other, kept) for other, kept in near if kept.xids.intersection(_MEMORY)]
    if not tellings:
        return None
    other, kept = max(tellings, key=_weight)
    own = (seen.verdict.severity, seen.recovery.rank, -_MEMORY.index(seen.xid))
    order = min(_MEMORY.index(xid) for xid in kept.xids.intersection(_MEMORY))
    return other if (kept.finding.verdict.severity, kept.finding.recovery.rank, -order) > own else None


def _gather(table: FindingsTable, key: Key, seen: Observation, near: list[tuple[Key, Kept]]) -> None:
    """Take into a new root what came before it in its burst."""
    if seen.caused_by is not None:
        table.kept[key] = msgspec.structs.replace(table.kept[key], inferred_from=seen.caused_by)
        return
    entry = fault_or_unknown(seen.fault)
    for other, kept in near:
        if other not in table.kept or key not in table.kept:
            continue
        consequence = kept.xids <= _CONSEQUENCES and bool(kept.xids) and kept.inferred_from is None
        told_before = kept.inferred_from is not None and kept.inferred_from == seen.xid
        same_memory = seen.xid in _MEMORY and bool(kept.xids.intersection(_MEMORY))
        if told_before or same_memory or (consequence and seen.xid is not None and seen.verdict is not Verdict.OK):
            table.absorb(key, other)
        elif kept.xids == frozenset({_ADVICE}) and not fault_or_unknown(other.fault).unintelligible:
            if entry.unintelligible:
                table.absorb(other, key)
            elif _can_be_advised(table.kept[key]):
                table.kept[key] = _advised(table.kept[key], kept.finding.recovery, alone=True)
                table.absorb(key, other)


def _weight(item: tuple[Key, Kept]) -> tuple[int, int, Key]:
    finding = item[1].finding
    return (finding.verdict.severity, finding.recovery.rank, item[0])
