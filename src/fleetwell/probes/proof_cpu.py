"""A device of the proof that is the host's processor, with the standard library alone: for virtual nodes and tests."""

from __future__ import annotations

import hashlib
import random
import time
from array import array

from fleetwell.probes.proof_device import WORD, Block, CannotTellError, Flip, Vitals
from fleetwell.probes.proof_thresholds import CPU, Pattern

MEMORY_BYTES = 2 << 20
"""Memory that is tested: enough for the logic, and a fraction of a second."""
BLOCK_BYTES = 512 << 10
CHECKS = 3
"""Vectors that a product is checked with (Freivalds): a wrong product passes one with probability at most one half."""
_MASK = (1 << 64) - 1
Matrix = list[list[int]]


class CpuBlock:
    """Host memory."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.held = array("Q", bytes(words * WORD))

    def write(self, pattern: Pattern, first: int) -> None:
        """Fill it."""
        self.held[:] = _filled(pattern, first, self.words)

    def verify(self, pattern: Pattern, first: int) -> Flip | None:
        """Read it back."""
        should = _filled(pattern, first, self.words)
        if self.held == should:
            return None
        wrong = [word for word in range(self.words) if self.held[word] != should[word]]
        return Flip(word=wrong[0], wrote=should[wrong[0]], read=self.held[wrong[0]], words=len(wrong))


def _filled(pattern: Pattern, first: int, words: int) -> array[int]:
    if not pattern.times:
        return array("Q", [pattern.flip]) * words
    return array("Q", ((word * pattern.times & _MASK) ^ pattern.flip for word in range(first, first + words)))


class CpuProduct:
    """A product of whole numbers: exact."""

    def __init__(self, size: int, seed: int) -> None:
        draw = random.Random(seed)  # noqa: S311 (test data)
        self._left, self._right = (_drawn(draw, size) for _ in range(2))
        self._draw = draw
        self._first = self.multiply(self._left, self._right)

    def multiply(self, left: Matrix, right: Matrix) -> Matrix:
        """Multiply two matrices."""
        columns = list(zip(*right, strict=True))
        return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left]

    def deviation(self) -> tuple[float, float]:
        """Check it by another way: the product times a vector is left times (right times the vector)."""
        worst = 0.0
        for _ in range(CHECKS):
            vector = [self._draw.choice((-1, 1)) for _ in self._left]
            reference = _applied(self._left, _applied(self._right, vector))
            pairs = zip(_applied(self._first, vector), reference, strict=True)
            worst = max(worst, *(float(abs(a - b)) for a, b in pairs))
        return worst, worst

    def digest(self) -> str:
        """Tell its bits."""
        return hashlib.sha256(repr(self._first).encode()).hexdigest()

    def repeat(self, times: int) -> int:
        """Compute it again."""
        return sum(self.multiply(self._left, self._right) != self._first for _ in range(times))


class CpuDevice:
    """The host's processor and memory."""

    model = CPU

    def __init__(self, component: str = "host") -> None:
        self.component = component

    def free(self) -> int:
        """Give what is tested of the host's memory: the rest is the host's own."""
        return MEMORY_BYTES

    def hold(self, size: int) -> list[Block]:
        """Allocate host memory."""
        try:
            return [CpuBlock(BLOCK_BYTES // WORD) for _ in range(max(1, size // BLOCK_BYTES))]
        except MemoryError:
            raise CannotTellError(f"{size >> 20} MiB of host memory could not be allocated") from None

    def product(self, dtype: str, size: int, seed: int) -> CpuProduct:
        """Multiply whole numbers, whatever the format is called."""
        del dtype
        return CpuProduct(size, seed)

    def host_copy(self, size: int) -> tuple[float, float, bool]:
        """Copy within host memory."""
        there, back = bytes(range(256)) * (size >> 8), bytearray(size)
        began = time.perf_counter()
        back[:] = there
        middle = time.perf_counter()
        again = bytes(back)
        return middle - began, time.perf_counter() - middle, again == there

    def vitals(self) -> Vitals | None:
        """Give nothing: a processor's heat is not the proof's subject."""
        return None


class CpuLinks:
    """Several processors that are one."""

    model = CPU

    def __init__(self, components: tuple[str, ...]) -> None:
        self.components = components

    def copy(self, source: int, target: int, size: int) -> tuple[float, bool]:
        """Copy within host memory."""
        del source, target
        there, _, same = CpuDevice().host_copy(size)
        return there, same


def _drawn(draw: random.Random, size: int) -> Matrix:
    return [[draw.randrange(-99, 99) for _ in range(size)] for _ in range(size)]


def _applied(matrix: Matrix, vector: list[int]) -> list[int]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]
