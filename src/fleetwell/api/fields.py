"""Field types that several resources share: durations as people write them, and times as Kubernetes writes them."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated

import msgspec

Duration = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^([0-9]+(ms|s|m|h|d))+$",
        description="A duration: numbers with the units ms, s, m, h, d, e.g. 90s or 1h30m.",
        examples=["10m"],
    ),
]
"""A duration in a spec, e.g. ``90s`` or ``1h30m``; read with :func:`seconds`."""

Time = Annotated[dt.datetime, msgspec.Meta(tz=True)]
"""A time as the API carries it: RFC 3339, always with its zone."""

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_INITIALS = frozenset({"id", "uid"})
_PART = re.compile(r"([0-9]+)(ms|s|m|h|d)")


def wire(name: str) -> str:
    """Give a field's name in JSON, as Kubernetes spells it: ``node_uid`` is ``nodeUID``, ``boot_id`` is ``bootID``."""
    first, *rest = name.split("_")
    return first + "".join(part.upper() if part in _INITIALS else part.capitalize() for part in rest)


def seconds(duration: str) -> float:
    """Give a duration in seconds.

    :raises ValueError: the text is not numbers with units.
    """
    parts = _PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        msg = f"{duration!r} is not a duration: write numbers with the units ms, s, m, h, d, as in 90s or 1h30m"
        raise ValueError(msg)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def span(duration: str) -> dt.timedelta:
    """Give a duration as a timedelta."""
    return dt.timedelta(seconds=seconds(duration))


def words(delta: dt.timedelta | float) -> str:
    """Say a length of time as a person would, in its two largest units: ``1h5m``, ``42s``, ``0.3s``."""
    total = delta.total_seconds() if isinstance(delta, dt.timedelta) else delta
    if total < 0:
        return "-" + words(-total)
    if total < 10:
        return f"{total:.1f}s".replace(".0s", "s")
    rest, parts = round(total), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return "".join(parts[:2])


def from_epoch(at: float) -> dt.datetime:
    """Turn seconds since the epoch into the UTC time that the API carries."""
    return dt.datetime.fromtimestamp(at, tz=dt.UTC)
