"""Reads the times that logs are printed with. A time is evidence, and orders lines of one machine only."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from typing import Final

from fleetwell.health.catalogue import read_data

ISO: Final = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?"
MONTH: Final = r"(?:[^\W\d_]{3,9}\.?|\d{1,2}[月월])"
"""A month in whatever language the machine speaks."""
_WEEKDAY: Final = r"[^\W\d_]{1,9}\.?"
BSD: Final = (
    rf"(?:\d{{4}} |{_WEEKDAY} {{1,3}})?{MONTH} {{1,4}}\d{{1,2}} \d{{2}}:\d{{2}}:\d{{2}}(?:\.\d{{1,9}})?(?: \d{{4}})?"
)
"""A syslog file's time, also with the year before or behind it or with the day of the week."""

_ISO: Final = re.compile(
    r"(?:\S{1,12} )?(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:[.,](\d{1,9}))?(?: ?(Z|UTC|[+-]\d{2}:?\d{2}))?\Z"
)
_BSD: Final = re.compile(
    rf"(?:(\d{{4}}) |{_WEEKDAY} {{1,3}})?({MONTH}) {{1,4}}(\d{{1,2}}) (\d{{2}}:\d{{2}}:\d{{2}})"
    r"(?:\.(\d{1,9}))?(?: (\d{4}))?\Z"
)
_MONTHS: Final = {
    name: int(number) for number, names in tomllib.loads(read_data("months.toml")).items() for name in names
}
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
    if (bsd := _BSD.match(stamp)) is None or (month := _month(bsd[2])) is None:
        return None
    rest_of_year = f"-{month:02d}-{int(bsd[3]):02d}T{bsd[4]}.{(bsd[5] or '0')[:6]:0<6}"
    if (written := bsd[1] or bsd[6]) is not None:
        return _epoch(f"{written}{rest_of_year}+00:00")
    if now is None:
        return None
    year = dt.datetime.fromtimestamp(now, dt.UTC).year
    for candidate in (year + 1, year, year - 1, year - 2, year - 3, year - 4):  # a 29 February may be that long ago
        at = _epoch(f"{candidate}{rest_of_year}+00:00")
        if at is not None and at <= now + _DAY:
            return at
    return None


def _month(name: str) -> int | None:
    return int(name[:-1]) if name[0].isdigit() else _MONTHS.get(name.lower().rstrip("."))


def _epoch(iso: str) -> float | None:
    try:
        return dt.datetime.fromisoformat(iso).timestamp()
    except (ValueError, OverflowError):
        return None
