"""The findings while one step works on them: sighting, joining, and the bound on how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from fleetwell.health.catalogue import fault_or_unknown
from fleetwell.health.evidence import evidence
from fleetwell.health.triage_state import Kept, Key, TriageState, device_of
from fleetwell.health.vocabulary import (
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
_MAX_XIDS: Final = 16


class FindingsTable:
    """A private, changeable copy of a state's findings; the state itself never changes."""

    def __init__(self, state: TriageState) -> None:
        self.kept: dict[Key, Kept] = dict(state.kept)
        self.overflow = state.overflow
        self._boot_id = state.boot_id
        self._now = state.now
        self._limit = state.settings.max_findings

    def see(self, key: Key, seen: Observation, times: int = 1) -> bool:
        """Add sightings to their finding, or open one; False when there was no room for it."""
        kept = self.kept.get(key)
        if kept is None:
            kept = Kept(finding=_open(key, seen, self._boot_id, times), anchor=self._anchor(seen))
            if not self._make_room(kept):
                self.overflow += 1
                return False
        else:
            finding = kept.finding
            again = kept.adopted and seen.at <= finding.last_seen
            kept = msgspec.structs.replace(
                kept,
                finding=_sighted(finding, seen, self._boot_id, count=0 if again else times),
                oks=0,
                done=Recovery.NONE,
                anchor=kept.anchor if again else self._anchor(seen),
            )
        self.kept[key] = _with_xids(kept, seen)
        return True

    def join(self, root: Key, seen: Observation) -> None:
        """Add a consequence to its root: as evidence, not as another sighting, and its own advice does not count."""
        kept = self.kept[root]
        lines = _with_evidence(kept.finding.evidence, seen.evidence)
        finding = msgspec.structs.replace(kept.finding, evidence=lines)
        self.kept[root] = _with_xids(msgspec.structs.replace(kept, finding=finding), seen)

    def absorb(self, root: Key, other: Key) -> None:
        """Take a finding that turned out to be a consequence, or a weaker telling, into its root."""
        gone, kept = self.kept.pop(other), self.kept[root]
        lines = kept.finding.evidence
        for line in gone.finding.evidence:
            lines = _with_evidence(lines, line)
        first = min(kept.finding.first_seen, gone.finding.first_seen)
        finding = msgspec.structs.replace(kept.finding, evidence=lines, first_seen=first)
        self.kept[root] = msgspec.structs.replace(kept, finding=finding, xids=kept.xids | gone.xids)

    def near(self, seen: Observation, burst_s: float) -> Iterator[tuple[Key, Kept]]:
        """Give the event findings of the same device whose last sight lies within a burst of this one."""
        device = device_of(seen.component)
        for key, kept in list(self.kept.items()):
            if (
                key.source is Source.EVENT
                and abs(kept.finding.last_seen - seen.at) <= burst_s
                and device_of(key.component) == device
            ):
                yield key, kept

    def _anchor(self, seen: Observation) -> float:
        return min(seen.at, self._now) if self._now else seen.at

    def _make_room(self, new: Kept) -> bool:
        """Bound the findings: when full, the least severe one goes, but only for one that is worse."""
        if len(self.kept) < self._limit:
            return True
        key, least = min(self.kept.items(), key=lambda item: _severity(item[1].finding))
        if _severity(least.finding) >= _severity(new.finding):
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
    if seen.xid is None or seen.xid in kept.xids or len(kept.xids) >= _MAX_XIDS:
        return kept
    return msgspec.structs.replace(kept, xids=kept.xids | {seen.xid})


def _with_evidence(lines: tuple[str, ...], line: str) -> tuple[str, ...]:
    line = evidence(line)
    if not line or line in lines:
        return lines
    kept = lines if len(lines) < _MAX_EVIDENCE else (lines[0], *lines[2:])
    return (*kept, line)
