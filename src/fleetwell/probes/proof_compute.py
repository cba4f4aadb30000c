"""Computation: products must be right against a reference, equal in every repetition, and fast enough under load.

Load and heat belong together: while the products run, clocks and temperature are read between batches.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from fleetwell.probes import proof_clocks
from fleetwell.probes.proof_device import CannotTellError, Device, Product, Vitals
from fleetwell.probes.proof_rows import Measured, Row, Told
from fleetwell.probes.proof_thresholds import Level, Model, Thresholds
from fleetwell.probes.proof_time import Time

CHECK = "compute"
BATCH_SECONDS = 0.5
"""About how long products run between two looks at clocks and temperature."""


def compute(device: Device, level: Level, limits: Thresholds, time: Time) -> Iterator[Told]:
    """Compute in every number format of the board; stop at the first that is wrong."""
    model = limits.model(device.model)
    readings: list[Vitals | None] = []
    passed: list[str] = []
    for dtype in limits.dtypes(level, model):
        for seed in range(1, level.seeds + 1):
            if time.over():
                raise CannotTellError(f"out of time: {dtype} with inputs {seed} was not computed")
            product = device.product(dtype, level.size, seed)
            # The load runs once for each format; further inputs are there for silent corruption.
            load = _Load(device, product, level, time, level.seconds if seed == 1 else 0.0)
            wrong = _wrong(product, dtype, limits) or load.differ() or load.too_slow(dtype, model, limits)
            if wrong:
                yield Row(CHECK, device.component, "BAD", f"{dtype}, inputs {seed}: {wrong}")
                return
            yield Measured(f"product {dtype} inputs {seed}", device.component, device.model, digest=product.digest())
            if load.sustained:
                yield Measured(f"TFLOP/s {dtype}", device.component, device.model, rate=load.tflops)
            if seed == 1:
                passed.append(load.summary(dtype))
            readings += load.readings
    blind = f" (no speed figure for {device.model!r})" if level.sustained and not model.tflops else ""
    said = f"{', '.join(passed)}, {level.size} x {level.size}, are equal and right{blind}"
    yield Row(CHECK, device.component, "OK", said)
    if level.sustained:
        yield from proof_clocks.judge(device.component, readings, model, limits)


def _wrong(product: Product, dtype: str, limits: Thresholds) -> str:
    element, total = product.deviation()
    bound = limits.bounds[dtype]
    if not element <= bound.element:  # Written so that it catches NaN too.
        return f"an element is off its reference by {element:.2g}, {bound.element:.2g} is allowed"
    if not total <= bound.total:
        return f"a row is off its reference by {total:.2g}, {bound.total:.2g} is allowed"
    return ""


class _Load:
    """Repeats one product for some seconds, and at least as often as the level asks."""

    def __init__(self, device: Device, product: Product, level: Level, time: Time, seconds: float) -> None:
        self._device = device
        self._product = product
        self._level = level
        self._time = time
        self._seconds = seconds
        self._rates: list[float] = []
        self._done = 0
        self._lasted = 0.0
        self.readings: list[Vitals | None] = []

    @property
    def sustained(self) -> bool:
        """Whether it was meant as a load and not only as a repetition."""
        return self._seconds > 0

    @property
    def tflops(self) -> float:
        """The median rate of the batches."""
        return statistics.median(self._rates) if self._rates else 0.0

    def differ(self) -> str:
        """Run it; say what came out differently."""
        batch = self._level.products
        began = self._time.now()
        while not self._time.over() and (not self._done or self._lasted < self._seconds):
            before = self._time.now()
            differing = self._product.repeat(batch)
            took = max(self._time.now() - before, 1e-9)
            self._done += batch
            self._lasted = self._time.now() - began
            if differing:
                return f"{differing} of {batch} repetitions of one product differ from the first, after {self._done}"
            if self.sustained:
                self._rates.append(2 * self._level.size**3 * batch / took / 1e12)
                self.readings.append(self._device.vitals())
            batch = max(1, min(batch * 4, int(batch * BATCH_SECONDS / took)))
        return ""

    def too_slow(self, dtype: str, model: Model, limits: Thresholds) -> str:
        """Say by how much it falls short of the board's floor.

        :raises CannotTellError: there was too little of it to judge by.
        """
        if not self.sustained:
            return ""
        if self._lasted < self._seconds * limits.limits.half_share:
            raise CannotTellError(f"{dtype}: {self._lasted:.0f} of {self._seconds:.0f} s of load were had")
        floor = model.floor(dtype)
        if self.tflops >= floor:
            return ""
        share = f"{model.compute_floor:.0%} of {model.tflops[dtype]:.3g}"
        return f"{self.tflops:.3g} TFLOP/s under load, the floor is {floor:.3g} ({share})"

    def summary(self, dtype: str) -> str:
        """Say what was done."""
        rate = f" at {self.tflops:.3g} TFLOP/s" if self.sustained else ""
        return f"{self._done + 1} products in {dtype}{rate}"
