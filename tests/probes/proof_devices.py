"""Devices with faults, for the proof's checks, and a clock that only they move."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from fleetwell.probes.proof_cpu import BLOCK_BYTES, CpuBlock, CpuDevice, CpuLinks, CpuProduct, Matrix
from fleetwell.probes.proof_device import WORD, Block, Flip, Vitals
from fleetwell.probes.proof_thresholds import Level, Pattern, thresholds
from fleetwell.probes.proof_time import Time

H100 = "NVIDIA H100 80GB HBM3"
WARM = Vitals(celsius=64, slowdown_celsius=90, clock_mhz=1400, reasons=0x4)


class Clock:
    """A clock that stands still until something takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def time(self, within: float = 3600) -> Time:
        return Time(within, self)


def small(level: str, **changes: object) -> Level:
    """Give a level with little to compute."""
    given = thresholds().levels[level]
    return msgspec.structs.replace(given, **{"size": 16, "copy_mib": 1, "copies": 2, "passes": 1, **changes})


class BadBlock(CpuBlock):
    """Memory in which a bit of one word is stuck, or which answers at two addresses."""

    def __init__(self, words: int, *, stuck: dict[int, int], alias: CpuBlock | None) -> None:
        super().__init__(words)
        self.stuck = stuck
        self.alias = alias

    def write(self, pattern: Pattern, first: int) -> None:
        super().write(pattern, first)
        if self.alias is not None:
            self.alias.held[:] = self.held

    def verify(self, pattern: Pattern, first: int) -> Flip | None:
        for word, bits in self.stuck.items():
            self.held[word] |= bits
        return super().verify(pattern, first)


class WrongProduct(CpuProduct):
    """A product that is wrong from the start, or from some repetition on."""

    def __init__(self, size: int, seed: int, device: FaultyDevice) -> None:
        self._device = device
        self._made = 0
        super().__init__(size, seed)

    def multiply(self, left: Matrix, right: Matrix) -> Matrix:
        product = super().multiply(left, right)
        self._made += 1
        if self._made >= self._device.wrong_from > 0:
            product[1][2] ^= 1 << 9
        return product

    def repeat(self, times: int) -> int:
        self._device.clock.now += times * self._device.seconds_each
        return super().repeat(min(times, 3))


@dataclass
class FaultyDevice(CpuDevice):
    """A GPU without a fault, unless it is given some."""

    component: str = "gpu/GPU-1"
    model: str = H100
    clock: Clock = field(default_factory=Clock)
    stuck: dict[int, dict[int, int]] = field(default_factory=dict)
    """Block → word → bits that are always 1."""
    aliased: bool = False
    wrong_from: int = 0
    """Number of the first multiplication that is wrong; 0: none."""
    seconds_each: float = 1e-11
    """Seconds that each product seems to take."""
    reading: Vitals | None = WARM
    copy_seconds: float = 1e-6
    copies_change: bool = False

    def hold(self, size: int) -> list[Block]:
        count = max(2, size // BLOCK_BYTES)
        words = BLOCK_BYTES // WORD // 64
        blocks: list[Block] = []
        for number in range(count):
            alias = blocks[0] if self.aliased and number == count - 1 else None
            assert alias is None or isinstance(alias, CpuBlock)
            blocks.append(BadBlock(words, stuck=self.stuck.get(number, {}), alias=alias))
        return blocks

    def product(self, dtype: str, size: int, seed: int) -> WrongProduct:
        return WrongProduct(size, seed, self)

    def host_copy(self, size: int) -> tuple[float, float, bool]:
        return self.copy_seconds, self.copy_seconds, not self.copies_change

    def vitals(self) -> Vitals | None:
        return self.reading


class FaultyLinks(CpuLinks):
    """Links between GPUs, some of which are slow or change what they carry."""

    model = H100

    def __init__(
        self, count: int, *, slow: set[tuple[int, int]] | None = None, changes: tuple[int, int] = (-1, -1)
    ) -> None:
        super().__init__(tuple(f"gpu/GPU-{number}" for number in range(count)))
        self.slow = slow or set()
        self.changes = changes

    def copy(self, source: int, target: int, size: int) -> tuple[float, bool]:
        gbps = 90 if (source, target) in self.slow else 390
        return size / gbps / 1e9, (source, target) != self.changes
