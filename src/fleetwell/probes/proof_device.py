"""What the proof asks of a device. The checks know no more, so they are the same on CUDA and on a processor."""

from __future__ import annotations

from typing import Protocol

import msgspec

from fleetwell.probes.proof_thresholds import Pattern

WORD = 8
"""Bytes of a word of a pattern."""


class CannotTellError(Exception):
    """The check could not be carried out; nothing is known about the device by it."""


class DeviceFailedError(Exception):
    """The device itself failed while it was tested."""


class Flip(msgspec.Struct, frozen=True):
    """Memory that did not hold what was written."""

    word: int
    """Number of the first such word within its block."""
    wrote: int
    read: int
    words: int
    """How many such words the block has."""


class Vitals(msgspec.Struct, frozen=True):
    """One reading under load; None where the board does not tell."""

    celsius: float | None = None
    slowdown_celsius: float | None = None
    clock_mhz: float | None = None
    reasons: int | None = None
    """NVML's bits of why clocks are lower than they could be."""


class Block(Protocol):
    """Memory of a device."""

    words: int

    def write(self, pattern: Pattern, first: int) -> None:
        """Fill it; ``first`` is the number of its first word in the whole tested memory."""

    def verify(self, pattern: Pattern, first: int) -> Flip | None:
        """Read it back and compare."""


class Product(Protocol):
    """A matrix product of fixed inputs, which the device computes again and again."""

    def deviation(self) -> tuple[float, float]:
        """Compare with a reference in higher precision: of sampled elements, and of all rows' sums."""

    def digest(self) -> str:
        """Tell the product's bits: the same on every device that computes rightly."""

    def repeat(self, times: int) -> int:
        """Compute it again; give how many of the repetitions differ from the first in any bit."""


class Device(Protocol):
    """One device under test."""

    component: str
    model: str

    def free(self) -> int:
        """Give the bytes of memory that can be tested."""

    def hold(self, size: int) -> list[Block]:
        """Really allocate about so many bytes.

        :raises CannotTellError: there is not so much.
        """

    def product(self, dtype: str, size: int, seed: int) -> Product:
        """Make inputs from a seed and compute their product once."""

    def host_copy(self, size: int) -> tuple[float, float, bool]:
        """Copy so many bytes to the device and back; give seconds there, seconds back, and whether they are equal."""

    def vitals(self) -> Vitals | None:
        """Read heat and clocks; None where there is nothing to read."""


class Links(Protocol):
    """All devices of a node together."""

    components: tuple[str, ...]
    model: str

    def copy(self, source: int, target: int, size: int) -> tuple[float, bool]:
        """Copy so many bytes from one device to another; give seconds and whether they arrived the same."""
