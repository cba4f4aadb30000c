"""The findings while one step works on them: sighting, joining, and the bound on how many there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from fleetwell.health.catalogue import fault_or_unknown
from fleetwell.health.evidence import evidence
from fleetwell.health.triage_state import Kept, Key, TriageState, device_of
from fleetwell.health.vocabulary import (
    SECONDARY,
    BootId,
    Clears,
    Finding,
    Observation,
    Recovery,
    Source,
    Verdict,
    strongest,
)

_MAX_EVIDENCE: Final = 5
MAX_XIDS: Final = 16


class FindingsTable:
    """A private, changeable copy of a state's findings; the state itself never changes."""

    def __init__(self, state: TriageState) -> None:
        self.kept: dict[Key, Kept] = dict(state.kept)
        self.overflow = state.overflow
        self._boot_id = state.boot_id
        self._now = state.now
        self._limit = state.settings.max_findings
        self._near: dict[str, list[Key]] | None = None
        self._least: int | None = None
        """The least severity when there was no room: it is looked for once, since severities only grow in a step."""

    def see(self, key: Key, seen: Observation, times: int = 1) -> bool:
        """Add sightings to their finding, or open one; False when there was no room for it."""
        kept = self.kept.get(key)
        if kept is None:
            opened = _open(key, seen, self._boot_id, times)
            kept = Kept(finding=opened, anchor=self._anchor(seen), secondary=seen.unit == SECONDARY)
            if not self._make_room(kept):
                self.overflow += 1
                return False
        else:
            finding = kept.finding
            again = kept.adopted and seen.at <= finding.last_seen
            kept = msgspec.structs.replace(
                kept,
                finding=_sighted(finding, seen, self._boot_id, count=0 if again else times),
                secondary=kept.secondary and seen.unit == SECONDARY,
                unadvised=strongest([kept.unadvised, seen.recovery]),
                oks=0,
                done=Recovery.NONE,
                anchor=kept.anchor if again else self._anchor(seen),
            )
        if key not in self.kept and self._near is not None and key.source is Source.EVENT:
            keys = self._near.setdefault(device_of(key.component), [])
            if key not in keys:
                keys.append(key)
        self.kept[key] = _with_xids(kept, seen)
        return True

    def join(self, root: Key, seen: Observation) -> None:
        """Add a consequence to its root: as evidence, not as another sighting, and its own advice does not count."""
        kept = self.kept[root]
        lines = _with_evidence(kept.finding.evidence, seen.evidence)
        finding = msgspec.structs.replace(kept.finding, evidence=lines)
        self.kept[root] = _with_xids(msgspec.structs.replace(kept, finding=finding), seen)

    def absorb(self, root: Key, other: Key, *, explained: bool = False) -> None:
        """Take a finding that turned out to be a consequence, or a weaker telling, into its root.

        :param explained: the root is only advice that explains it: without the advice it would stand by itself.
        """
        gone, kept = self.kept.pop(other), self.kept[root]
        if explained:
            rest = tuple(one for one in kept.explained if one[0] != other)[: MAX_XIDS - 1]
            kept = msgspec.structs.replace(kept, explained=(*rest, (other, gone)))
        lines = kept.finding.evidence
        for line in gone.finding.evidence:
            lines = _with_evidence(lines, line)
        first = min(kept.finding.first_seen, gone.finding.first_seen)
        finding = msgspec.structs.replace(kept.finding, evidence=lines, first_seen=first)
        self.kept[root] = msgspec.structs.replace(kept, finding=finding, xids=kept.xids | gone.xids)

    def of_device(self, seen: Observation) -> list[tuple[Key, Kept]]:
        """Give the event findings of this boot on the same device that were not seen since."""
        found = [(key, self.kept[key]) for key in self._events().get(device_of(seen.component), ()) if key in self.kept]
        return [
            (key, kept)
            for key, kept in found
            if kept.finding.boot_id == self._boot_id and kept.finding.last_seen <= seen.at
        ]

    def events_of_gpus(self) -> Iterator[tuple[Key, Kept]]:
        """Give the event findings of this boot on GPUs and their links."""
        for key, kept in self.kept.items():
            on_gpu = key.source is Source.EVENT and key.component.startswith(("gpu/", "nvlink/"))
            if on_gpu and kept.finding.boot_id == self._boot_id:
                yield key, kept

    def restore(self, instead: Key) -> None:
        """End a finding that was only advice; what it explained stands by itself again."""
        for key, kept in self.kept.pop(instead).explained:
            if self.kept.setdefault(key, kept) is kept and key not in self._events()[device_of(key.component)]:
                self._events()[device_of(key.component)].append(key)

    def near(self, seen: Observation, burst_s: float) -> Iterator[tuple[Key, Kept]]:
        """Give the event findings of this boot on the same device whose last sight lies within a burst of this one."""
        for key in self._events().get(device_of(seen.component), ()):
            kept = self.kept.get(key)
            if kept is not None and self._within(kept, seen, burst_s):
                yield key, kept

    def near_elsewhere(self, seen: Observation, faults: Collection[str], burst_s: float) -> Iterator[tuple[Key, Kept]]:
        """Give such findings of some kinds on whatever device."""
        for keys in self._events().values():
            for key in keys:
                kept = self.kept.get(key) if key.fault in faults else None
                if kept is not None and self._within(kept, seen, burst_s):
                    yield key, kept

    def _within(self, kept: Kept, seen: Observation, burst_s: float) -> bool:
        finding = kept.finding
        return abs(finding.last_seen - seen.at) <= burst_s and finding.boot_id == self._boot_id

    def _events(self) -> dict[str, list[Key]]:
        """Index the event findings by device: a flood asks for them again and again."""
        if self._near is None:
            self._near = {}
            for key in self.kept:
                if key.source is Source.EVENT:
                    self._near.setdefault(device_of(key.component), []).append(key)
        return self._near

    def _anchor(self, seen: Observation) -> float:
        return min(seen.at, self._now) if self._now else seen.at

    def _make_room(self, new: Kept) -> bool:
        """Bound the findings: when full, the least severe one goes, but only for one that is worse."""
        if len(self.kept) < self._limit:
            self._least = None
            return True
        if self._least is not None and self._least >= _severity(new.finding):
            return False
        key, least = min(self.kept.items(), key=lambda item: _severity(item[1].finding))
        self._least = _severity(least.finding)
        if self._least >= _severity(new.finding):
            return False
        del self.kept[key]
        self.overflow += 1
        return True


def _severity(finding: Finding) -> int:
    return max(finding.verdict.severity, Verdict.UNKNOWN.severity) if finding.suspected else finding.verdict.severity


def _open(key: Key, seen: Observation, boot_id: BootId, times: int) -> Finding:
    clears = Clears.SNAPSHOT if key.source is Source.SNAPSHOT else fault_or_unknown(seen.fault).clears
    return Finding(
        fault=seen.fault,
        component=seen.component,
        verdict=seen.verdict,
        recovery=seen.recovery,
        source=key.source,
        probe=seen.probe,
        clears=clears,
        first_seen=seen.at,
        last_seen=seen.at,
        count=times,
        boot_id=boot_id,
        evidence=_with_evidence((), seen.evidence),
    )


def _sighted(finding: Finding, seen: Observation, boot_id: BootId, count: int) -> Finding:
    return msgspec.structs.replace(
        finding,
        verdict=max(finding.verdict, seen.verdict, key=lambda verdict: verdict.severity),
        recovery=strongest([finding.recovery, seen.recovery]),
        first_seen=min(finding.first_seen, seen.at),
        last_seen=max(finding.last_seen, seen.at),
        count=finding.count + count,
        boot_id=boot_id,
        evidence=_with_evidence(finding.evidence, seen.evidence),
    )


def _with_xids(kept: Kept, seen: Observation) -> Kept:
    if seen.xid is None or seen.xid in kept.xids or len(kept.xids) >= MAX_XIDS:
        return kept
    return msgspec.structs.replace(kept, xids=kept.xids | {seen.xid})


def _with_evidence(lines: tuple[str, ...], line: str) -> tuple[str, ...]:
    line = evidence(line)
    if not line or line in lines:
        return lines
    kept = lines if len(lines) < _MAX_EVIDENCE else (lines[0], *lines[2:])
    return (*kept, line)
