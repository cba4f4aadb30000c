"""Heat and clocks under load: a board that throttles itself works, and makes every job on the node wait for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from fleetwell.probes.proof_device import Vitals
from fleetwell.probes.proof_rows import Row
from fleetwell.probes.proof_thresholds import Limits, Model, Thresholds

CHECK = "clocks"


def judge(component: str, readings: list[Vitals | None], model: Model, limits: Thresholds) -> Iterator[Row]:
    """Judge what was read between batches. A processor has no such readings, and owes none."""
    told = [reading for reading in readings if reading is not None]
    if not told and "cpu" in model.names:
        return
    if len(told) < limits.limits.samples:
        said = f"{len(told)} readings of heat and clocks under load, {limits.limits.samples} are needed"
        yield Row(CHECK, component, "UNKNOWN", said)
        return
    wrong = [*_heat(told, limits.limits), *_reasons(told, limits), *_clock(told, model)]
    blind = [
        name
        for name, values in (
            ("temperature", [reading.celsius for reading in told]),
            ("SM clock", [reading.clock_mhz for reading in told]),
            ("throttle reasons", [reading.reasons for reading in told]),
        )
        if all(value is None for value in values)
    ]
    if wrong:
        yield Row(CHECK, component, "BAD", "; ".join(wrong))
    elif blind:
        yield Row(CHECK, component, "UNKNOWN", f"the board does not tell its {' and '.join(blind)}")
    else:
        yield Row(CHECK, component, "OK", _summary(told))


def _heat(told: list[Vitals], limits: Limits) -> Iterator[str]:
    for reading in sorted(told, key=lambda one: -(one.celsius or 0.0))[:1]:
        slowdown = reading.slowdown_celsius
        limit = limits.max_celsius if slowdown is None else slowdown - limits.below_slowdown
        if reading.celsius is not None and reading.celsius >= limit:
            yield f"{reading.celsius:.0f} °C under load, the limit is {limit:.0f} °C"


def _reasons(told: list[Vitals], limits: Thresholds) -> Iterator[str]:
    known = [reading.reasons for reading in told if reading.reasons is not None]
    for name, throttle in limits.throttle.items():
        share = sum(bool(reasons & throttle.bit) for reasons in known) / max(1, len(known))
        if share > throttle.share:
            said = f"throttled ({name.replace('_', ' ')}) in {share:.0%} of the readings"
            yield f"{said}, {throttle.share:.0%} are allowed"


def _clock(told: list[Vitals], model: Model) -> Iterator[str]:
    clocks = [reading.clock_mhz for reading in told if reading.clock_mhz is not None]
    if clocks and statistics.median(clocks) < model.clock_mhz:
        yield f"SM clock {statistics.median(clocks):.0f} MHz under load, the floor is {model.clock_mhz:.0f} MHz"


def _summary(told: list[Vitals]) -> str:
    hottest = max(reading.celsius for reading in told if reading.celsius is not None)
    clock = statistics.median(reading.clock_mhz for reading in told if reading.clock_mhz is not None)
    return f"at most {hottest:.0f} °C and {clock:.0f} MHz under load in {len(told)} readings, not throttled"
