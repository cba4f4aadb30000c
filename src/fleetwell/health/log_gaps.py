"""Finds where records of the kernel log are missing, so that another source can be asked for just those.

Everything is counted by the kernel's own clock: neither a step of the wall clock nor another reader's opinion of the
boot time moves a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from fleetwell.health.kmsg_record import has_form, header_number, parse_header

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


def breaks(raws: Sequence[bytes]) -> list[tuple[bytes | None, bytes]]:
    """Give the records whose numbers do not follow the one before them, each with that one, and the first with None.

    It looks at few of them: where the first and the last number of a stretch fit its length, nothing is missing in it.
    Records without the kernel's form, which the kernel never gives, are left out where they are met.
    """
    try:
        return _breaks(raws)
    except _NoNumberError:
        return _breaks([raw for raw in raws if has_form(raw)])


class _NoNumberError(ValueError):
    """A record has no number."""


def _breaks(raws: Sequence[bytes]) -> list[tuple[bytes | None, bytes]]:
    if not raws:
        return []
    found: list[tuple[bytes | None, bytes]] = [(None, raws[0])]
    stretches = [(0, len(raws) - 1, _number(raws[0]), _number(raws[-1]))]
    while stretches:
        first, last, oldest, newest = stretches.pop()
        if newest - oldest == last - first:
            continue
        if last - first == 1:
            found.append((raws[first], raws[last]))
            continue
        middle = (first + last) // 2
        number = _number(raws[middle])
        stretches += ((middle, last, number, newest), (first, middle, oldest, number))
    return found


def _number(raw: bytes) -> int:
    number = header_number(raw, 1)
    if number < 0:
        raise _NoNumberError
    return number


def gaps_in(raws: Sequence[bytes], last: Place | None) -> list[Gap]:
    """Find what is missing before and between these records.

    :param last: the record that was read before them.
    """
    found: list[Gap] = []
    for before, raw in breaks(raws):
        earlier = last if before is None else place_of(before)
        place = place_of(raw)
        if place is None:
            continue
        expected = 0 if earlier is None else earlier.sequence + 1
        if place.sequence > expected:
            after = 0 if earlier is None else earlier.usec
            found.append(Gap(after=after, before=place.usec, missing=place.sequence - expected))
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
