"""Counts for whom an application fault came back in one place: one program's bug is not the GPU's fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fleetwell.health.bursts import REPETITION_BY_UNIT
from fleetwell.health.triage_state import RepetitionKey, TriageSettings, device_of
from fleetwell.health.vocabulary import Observation

_MAX_PLACES: Final = 256
_MAX_OWNERS: Final = 16


def repeated(
    windows: dict[RepetitionKey, tuple[tuple[str, float], ...]],
    seen: Observation,
    owners: Mapping[int, str],
    settings: TriageSettings,
) -> bool:
    """Note whose fault this was, and say whether enough different owners had it here within the window."""
    if seen.xid is None or seen.pid is None or seen.xid not in REPETITION_BY_UNIT:
        return False
    by_unit = REPETITION_BY_UNIT[seen.xid]
    if by_unit and not seen.unit:
        return False
    place = RepetitionKey(device_of(seen.component), seen.xid, seen.unit if by_unit else "")
    owner = owners.get(seen.pid, f"pid {seen.pid}")
    if not owner:
        return False  # Whose it was cannot be told: it may be one that is counted already.
    fresh = [
        (name, at)
        for name, at in windows.pop(place, ())
        if name != owner and abs(seen.at - at) <= settings.repetition_window_s
    ]
    fresh.append((owner, seen.at))
    while len(windows) >= _MAX_PLACES:
        del windows[next(iter(windows))]  # the place that was quiet for longest
    windows[place] = tuple(fresh[-_MAX_OWNERS:])
    return len(windows[place]) >= settings.repetition_count
