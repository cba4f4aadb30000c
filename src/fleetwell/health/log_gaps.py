"""Finds where records of the kernel log are missing, so that another source can be asked for just those.

Everything is counted by the kernel's own clock: neither a step of the wall clock nor another reader's opinion of the
boot time moves a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from fleetwell.health.kmsg_record import parse_header

MAX_GAPS: Final = 64
"""Beyond these a gap is taken into the latest one: while the ring is overrun again and again, all of it is one gap."""


class Place(msgspec.Struct, frozen=True):
    """One record's place in the log."""

    sequence: int
    usec: int
    """Microseconds since the boot."""


class Gap(msgspec.Struct, frozen=True):
    """Records that were not read, between two that were (or from the boot on)."""

    after: int
    """Microseconds since the boot of the record before it; 0 where it begins with the boot."""
    before: int
    """Microseconds since the boot of the record behind it."""
    missing: int


def place_of(raw: bytes) -> Place | None:
    """Tell a raw record's place; None where it does not have the kernel's form."""
    header = parse_header(raw)
    return None if header is None else Place(*header)


def gaps_in(raws: Iterable[bytes], last: Place | None) -> list[Gap]:
    """Find what is missing before and between these records.

    :param last: the record that was read before them.
    """
    found: list[Gap] = []
    for raw in raws:
        place = place_of(raw)
        if place is None:
            continue
        expected = 0 if last is None else last.sequence + 1
        if place.sequence > expected:
            after = 0 if last is None else last.usec
            found.append(Gap(after=after, before=place.usec, missing=place.sequence - expected))
        last = place
    return found


def joined(gaps: Sequence[Gap]) -> list[Gap]:
    """Bound the gaps: of more than :data:`MAX_GAPS` the later ones become one."""
    if len(gaps) <= MAX_GAPS:
        return list(gaps)
    kept, rest = gaps[: MAX_GAPS - 1], gaps[MAX_GAPS - 1 :]
    return [
        *kept,
        Gap(
            after=min(one.after for one in rest),
            before=max(one.before for one in rest),
            missing=sum(one.missing for one in rest),
        ),
    ]


def unjudged(gaps: Iterable[Gap], until: float) -> list[Gap]:
    """Leave out what an earlier reader judged.

    :param until: up to where it did, in microseconds since the boot.
    """
    return [msgspec.structs.replace(gap, after=max(gap.after, int(until))) for gap in gaps if gap.before > until]
