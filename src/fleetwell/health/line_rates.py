"""Counts lines that say something only when they come often; see ``line_rates.toml``."""

from __future__ import annotations

import collections
import tomllib
from typing import Final

import msgspec

from fleetwell.health.catalogue import read_data
from fleetwell.health.vocabulary import Component

_MAX_PLACES: Final = 256


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How often a line must come, on one component, to be its fault."""

    count: int
    seconds: float
    source: str
    below: str = ""
    """The fault that fewer are; empty where fewer say nothing."""


RATES: Final[dict[str, Rate]] = msgspec.convert(tomllib.loads(read_data("line_rates.toml")), dict[str, Rate])
BELOW: Final = frozenset(rate.below for rate in RATES.values())


class LineRates:
    """The latest times of such lines, bounded in places and in times."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, Component, str], collections.deque[float]] = {}

    def name(self, fault: str, component: Component, unit: str, at: float) -> str:
        """Give the fault that this line is: its own when it comes often enough, else what fewer are (may be none)."""
        rate = RATES.get(fault)
        if rate is None:
            return fault
        place = (fault, component, unit)
        times = self._times.pop(place, None)
        if times is None:
            while len(self._times) >= _MAX_PLACES:
                del self._times[next(iter(self._times))]  # the place that was quiet for longest
            times = collections.deque(maxlen=rate.count)
        self._times[place] = times
        times.append(at)
        often = len(times) == rate.count and abs(at - times[0]) <= rate.seconds
        return fault if often else rate.below
