"""The proof's memory and compute checks on the CPU, with the standard library alone: under a second."""

from __future__ import annotations

import random
from array import array

MEMORY_BYTES = 32 << 20
PATTERNS = (0x55, 0xAA, 0x00, 0xFF)
SIZE = 96
"""Rows of the matrices: a product of this size takes about a tenth of a second."""


def memory() -> tuple[str, str]:
    """Write patterns into really allocated memory and read them back; give verdict and detail."""
    try:
        block = bytearray(MEMORY_BYTES)
    except MemoryError:
        return "UNKNOWN", f"{MEMORY_BYTES >> 20} MiB could not be allocated"
    for pattern in PATTERNS:
        block[:] = bytes([pattern]) * MEMORY_BYTES
        wrong = MEMORY_BYTES - block.count(pattern)
        if wrong:
            return "BAD", f"{wrong} bytes of {MEMORY_BYTES} read back other than {pattern:#04x}"
    words = array("Q", range(1 << 16))
    if sum(words) != (len(words) - 1) * len(words) // 2:
        return "BAD", "words read back other than their own index"
    return "OK", f"{MEMORY_BYTES >> 20} MiB of host memory hold {len(PATTERNS)} patterns"


def compute(seed: int = 1) -> tuple[str, str]:
    """Multiply two matrices and check the product by another way (Freivalds); give verdict and detail."""
    draw = random.Random(seed)  # noqa: S311 (test data)
    left, right = ([[draw.randrange(-99, 99) for _ in range(SIZE)] for _ in range(SIZE)] for _ in range(2))
    product = multiply(left, right)
    for _ in range(3):
        vector = [draw.randrange(-99, 99) for _ in range(SIZE)]
        if _apply(product, vector) != _apply(left, _apply(right, vector)):
            return "BAD", f"a {SIZE} x {SIZE} product differs from its check"
    return "OK", f"a {SIZE} x {SIZE} product on the CPU equals its check"


def multiply(left: list[list[int]], right: list[list[int]]) -> list[list[int]]:
    """Multiply two matrices."""
    columns = list(zip(*right, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left]


def _apply(matrix: list[list[int]], vector: list[int]) -> list[int]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]
