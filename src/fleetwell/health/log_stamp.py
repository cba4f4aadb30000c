"""Reads the times that logs are printed with. A time is evidence, and orders lines of one machine only."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_ISO: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:[.,](\d{1,9}))?(?: ?(Z|UTC|[+-]\d{2}:?\d{2}))?\Z"
)
_BSD: Final = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?: (\d{4}))?\Z")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY: Final = 86_400.0


def epoch_of(stamp: str, now: float | None = None) -> float | None:
    """Give the seconds since the epoch that a printed time says; None where it does not say them.

    A time without its zone is taken as UTC. A time without its year is of the latest year that does not put it more
    than a day after ``now``; without ``now`` it says nothing.
    """
    if (iso := _ISO.match(stamp)) is not None:
        zone = iso[4] or ""
        zone = "+00:00" if zone in {"", "Z", "UTC"} else zone
        return _epoch(f"{iso[1]}T{iso[2]}.{(iso[3] or '0')[:6]:0<6}{zone}")
    weekday, _, rest = stamp.partition(" ")
    bsd = _BSD.match(rest) if weekday not in _MONTHS else _BSD.match(stamp)
    if bsd is None or bsd[1] not in _MONTHS:
        return None
    rest_of_year = (
        f"-{_MONTHS.index(bsd[1]) + 1:02d}-{int(bsd[2]):02d}T{bsd[3]}:{bsd[4]}:{bsd[5]}.{(bsd[6] or '0')[:6]:0<6}"
    )
    if bsd[7]:
        return _epoch(f"{bsd[7]}{rest_of_year}+00:00")
    if now is None:
        return None
    year = dt.datetime.fromtimestamp(now, dt.UTC).year
    for candidate in (year + 1, year, year - 1, year - 2, year - 3, year - 4):  # a 29 February may be that long ago
        at = _epoch(f"{candidate}{rest_of_year}+00:00")
        if at is not None and at <= now + _DAY:
            return at
    return None


def _epoch(iso: str) -> float | None:
    try:
        return dt.datetime.fromisoformat(iso).timestamp()
    except (ValueError, OverflowError):
        return None
