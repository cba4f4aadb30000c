"""Tells consequence from cause: the lines of one event on one GPU become one finding, named by its root.

A fault on a GPU makes the driver write several codes within seconds. 45 is only ever a consequence; a line may name its
cause; 154 says what the driver wants done and has the last word over the generic advice of the code before it, and a
later one may take that back; one memory error is told by several codes; what GPUs say of their links beside a fatal
error of a switch is its other end; until an outstanding reset is done every call of the driver says so.
See ``xid_bursts.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from fleetwell.health.catalogue import fault_or_unknown, for_xid, read_data
from fleetwell.health.findings_table import MAX_XIDS, FindingsTable
from fleetwell.health.kernel_findings import NOTHING_ASKED, RECOVERY_ASKED
from fleetwell.health.line_rates import RATES
from fleetwell.health.triage_state import Kept, Key, device_of
from fleetwell.health.vocabulary import HOST, SECONDARY, FaultName, Observation, Recovery, Source, Verdict, strongest

_DATA: Final[dict[str, Any]] = tomllib.loads(read_data("xid_bursts.toml"))
_MEMORY: Final[tuple[int, ...]] = tuple(_DATA["memory"])
_CONSEQUENCES: Final[frozenset[int]] = frozenset(_DATA["consequences"])
_SWITCH_FATAL: Final = FaultName(_DATA["switch"]["fault"])
_SWITCH_PEERS: Final[frozenset[int]] = frozenset(_DATA["switch"]["peers"])
_ADVICE: Final = 154
_REFUSES: Final = FaultName(_DATA["refuses"]["fault"])
_GOES_ON: Final[dict[str, frozenset[str]]] = {name: frozenset(faults) for name, faults in _DATA["goes_on"].items()}

REPETITION_BY_UNIT: Final[dict[int, bool]] = {int(xid): by == "unit" for xid, by in _DATA["repetition"].items()}
"""Codes whose repetition is a suspicion, and whether they count by unit."""


def event_key(seen: Observation) -> Key:
    """Give the key of an event's own finding."""
    return Key(seen.fault, seen.component, Source.EVENT, "")


def see_event(table: FindingsTable, seen: Observation, burst_s: float, times: int = 1) -> Key | None:
    """Take an event in that came so many times in a row, as a finding of its own or as a part of its root's.

    Gives the key of the finding that it is in now; None when there was no room.
    """
    if seen.fault == NOTHING_ASKED:
        _take_back(table, seen)
        return None
    return _see(table, seen, burst_s, times)


def _see(table: FindingsTable, seen: Observation, burst_s: float, times: int) -> Key | None:
    key = event_key(seen)
    known = table.kept.get(key)
    told = known is not None and (seen.xid in known.xids or len(known.xids) >= MAX_XIDS)
    if told and seen.caused_by is None and seen.xid not in _CONSEQUENCES:
        # The flood: the same code in the same place again. What stood near it has been joined already.
        table.see(key, seen, times)
        if seen.xid != _ADVICE:
            return key
    near = [(other, kept) for other, kept in _near(table, seen, burst_s) if other != key]
    root = _waits_for_reset(table, seen) if seen.fault == _REFUSES else _root_of(seen, key, near)
    root = root or _goes_on(table, seen, key)
    if root is not None:
        table.join(root, seen)
        return root
    if seen.xid == _ADVICE:
        return _advise(table, key, seen, near)
    stronger = _stronger_memory_error(seen, near) or _fatal_switch(table, seen, burst_s)
    if stronger is not None:
        table.join(stronger, seen)
        return stronger
    if not table.see(key, seen, times):
        return None
    rate = RATES.get(seen.fault)
    fewer = event_key(msgspec.structs.replace(seen, fault=FaultName(rate.below))) if rate is not None else key
    if fewer != key and fewer in table.kept:
        table.absorb(key, fewer)  # what looked like little has become this
    _gather(table, key, seen, near)
    _gather_unnamed(table, key, seen, burst_s)
    if seen.fault == _SWITCH_FATAL and key in table.kept:
        _gather_peers(table, key, seen, burst_s)
    return key if key in table.kept else None


def _near(table: FindingsTable, seen: Observation, burst_s: float) -> Iterator[tuple[Key, Kept]]:
    """Give what may belong to the same event. What is put to the host is of no one device, and joins nothing."""
    return iter(()) if seen.component == HOST else table.near(seen, burst_s)


def _root_of(seen: Observation, key: Key, near: list[tuple[Key, Kept]]) -> Key | None:
    """Find the finding that this one is only the consequence of."""
    if seen.caused_by is not None:
        return next((other for other, kept in near if seen.caused_by in kept.xids), None)
    if seen.unit == SECONDARY:
        stronger = [(other, kept) for other, kept in near if other != key and _explains(kept, seen.recovery)]
        return max(stronger, key=_weight)[0] if stronger else None
    if seen.xid not in _CONSEQUENCES:
        return None
    roots = [(other, kept) for other, kept in near if kept.xids and not kept.xids <= _CONSEQUENCES]
    roots = [(other, kept) for other, kept in roots if kept.finding.verdict is not Verdict.OK and other != key]
    return max(roots, key=_weight)[0] if roots else None


def _waits_for_reset(table: FindingsTable, seen: Observation) -> Key | None:
    """Find the GPU whose reset is outstanding: until it is done every call says that, and often not of which GPU."""
    return next(
        (
            key
            for key, kept in table.events_of_gpus()
            if kept.finding.verdict is Verdict.BAD
            and kept.finding.recovery.rank >= Recovery.RESET_GPU.rank
            and kept.finding.last_seen <= seen.at
            and kept.done is Recovery.NONE
            and (seen.component == HOST or device_of(key.component) == device_of(seen.component))
            and key.fault != _REFUSES
        ),
        None,
    )


def _goes_on(table: FindingsTable, seen: Observation, key: Key) -> Key | None:
    """Find the GPU that is known to be gone, or not to come up, of which this line says so once more."""
    faults = _GOES_ON.get(seen.fault, frozenset())
    if not faults:
        return None
    return next(
        (
            other
            for other, kept in table.events_of_gpus()
            if other.fault in faults
            and other != key
            and kept.finding.last_seen <= seen.at
            and kept.done is Recovery.NONE
            and (seen.component == HOST or device_of(other.component) == device_of(seen.component))
        ),
        None,
    )


def _gather_unnamed(table: FindingsTable, key: Key, seen: Observation, burst_s: float) -> None:
    """Take in what the driver said in this burst before it said of which GPU."""
    if seen.component == HOST:
        return
    unnamed = {fault for fault, roots in _GOES_ON.items() if seen.fault in roots}
    for other, _ in list(table.near_elsewhere(seen, unnamed, burst_s)) if unnamed else ():
        if other.component == HOST and key in table.kept:
            table.absorb(key, other)


def _explains(kept: Kept, recovery: Recovery) -> bool:
    """Whether a finding can be the cause of an error that says of itself that it is a consequence."""
    finding = kept.finding
    return finding.verdict is Verdict.BAD and finding.recovery.rank >= recovery.rank and not kept.secondary


def _fatal_switch(table: FindingsTable, seen: Observation, burst_s: float) -> Key | None:
    """Find the fatal error of a switch that what a GPU says of its link is the other end of."""
    if seen.xid not in _SWITCH_PEERS:
        return None
    return next(
        (
            key
            for key, kept in table.near_elsewhere(seen, {_SWITCH_FATAL}, burst_s)
            if kept.finding.recovery.rank >= seen.recovery.rank
        ),
        None,
    )


def _gather_peers(table: FindingsTable, key: Key, seen: Observation, burst_s: float) -> None:
    """Take into a switch's fatal error what GPUs said of their ends of its links before it."""
    faults = {kept_key.fault for kept_key, kept in table.kept.items() if kept.xids and kept.xids <= _SWITCH_PEERS}
    for other, kept in list(table.near_elsewhere(seen, faults, burst_s)):
        weaker = kept.finding.recovery.rank <= table.kept[key].finding.recovery.rank
        if other != key and kept.xids and kept.xids <= _SWITCH_PEERS and weaker:
            table.absorb(key, other)


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
            if other in table.kept and _is_riddle(kept):  # it may have had to make room for the advice
                table.absorb(key, other, explained=True)
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
    unadvised = kept.unadvised if kept.advised else own
    return msgspec.structs.replace(kept, finding=finding, advised=True, unadvised=unadvised)


def _take_back(table: FindingsTable, seen: Observation) -> None:
    """Take back what the driver asked for on this GPU in this boot, and nothing that anything else asks for."""
    for key, kept in table.of_device(seen):
        if key.fault in RECOVERY_ASKED:
            explained = frozenset().union(*(one.xids for _, one in kept.explained))
            if kept.xids <= {_ADVICE} | _CONSEQUENCES | explained:  # what else is in it has no other finding
                table.restore(key)
        elif kept.advised:
            finding = msgspec.structs.replace(kept.finding, recovery=kept.unadvised)
            table.kept[key] = msgspec.structs.replace(kept, finding=finding, advised=False)
            table.join(key, seen)


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
        secondary = kept.secondary and _explains(table.kept[key], kept.finding.recovery)
        consequence = consequence and seen.xid is not None and seen.verdict is not Verdict.OK
        if told_before or same_memory or secondary or consequence:
            table.absorb(key, other)
        elif kept.xids == frozenset({_ADVICE}) and not fault_or_unknown(other.fault).unintelligible:
            if entry.unintelligible:
                table.absorb(other, key, explained=True)
            elif _can_be_advised(table.kept[key]):
                table.kept[key] = _advised(table.kept[key], kept.finding.recovery, alone=True)
                table.absorb(key, other)


def _weight(item: tuple[Key, Kept]) -> tuple[int, int, Key]:
    finding = item[1].finding
    return (finding.verdict.severity, finding.recovery.rank, item[0])
