"""Counts the lines of a flood that say what another one said, and tells triage of them with their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from fleetwell.health.evidence import evidence
from fleetwell.health.kmsg_record import header_number, message_of
from fleetwell.health.vocabulary import Observation


class Slot(msgspec.Struct, gc=False):
    """A line that needs no second reading in its window."""

    seen: Observation | None
    """What it says; None where it says nothing."""
    counted: list[bytes]
    """The records that came since, of the same meaning."""


UNSEEN: Final = Slot(None, [])
"""Stands for no slot where None has a meaning of its own."""


class Tally:
    """The slots on which something was counted since it was told last.

    :param at: gives the time of so many microseconds since the boot.
    """

    def __init__(self, at: Callable[[int], float]) -> None:
        self.waiting: list[Slot] = []
        """In no order. Whoever counts the first record on a slot that says something puts it here."""
        self._at = at

    def count(self, slot: Slot, raw: bytes) -> None:
        """Count a record on a slot; on one that says nothing, nothing needs to be counted."""
        if slot.seen is not None:
            if not slot.counted:
                self.waiting.append(slot)
            slot.counted.append(raw)

    def tell(self) -> list[Observation]:
        """Tell what was counted, in the order of its latest sight."""
        told = [self._told(slot) for slot in sorted(self.waiting, key=_latest)]
        self.waiting.clear()
        return told

    def _told(self, slot: Slot) -> Observation:
        assert slot.seen is not None  # noqa: S101 (only slots with an observation are counted)
        latest = slot.counted[-1]
        said = evidence(message_of(latest.partition(b";")[2]))
        at = self._at(header_number(latest, 2))
        told = msgspec.structs.replace(slot.seen, at=at, times=len(slot.counted), evidence=said)
        slot.counted.clear()
        return told


def _latest(slot: Slot) -> int:
    return header_number(slot.counted[-1], 1)
