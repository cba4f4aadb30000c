"""The proof's memory and compute checks on every CUDA device, through torch."""

from __future__ import annotations

from collections.abc import Iterator

import torch

SHARE = 0.5
"""Part of the free memory that the quick level writes and reads back."""
CHUNK = 1 << 30
PATTERNS = (0x5555555555555555, -0x5555555555555556)
SIZE = 2048
ROUNDS = 8
TOLERANCE = 1e-2
"""Largest relative difference of a float32 product (TensorFloat-32 off) from its float64 check on the CPU: a healthy
GPU is below 1e-5; a flipped exponent or mantissa bit of weight is far above."""


def prove(expected: int) -> Iterator[tuple[str, str, str]]:
    """Test each device; give check, verdict, detail."""
    visible = torch.cuda.device_count()
    if visible < max(1, expected):
        yield "cuda", "UNKNOWN", f"CUDA shows {visible} of the {expected} GPUs that the driver lists"
    for index in range(visible):
        for check in (_memory, _compute):
            try:
                verdict, detail = check(torch.device("cuda", index))
            except torch.cuda.OutOfMemoryError as error:
                verdict, detail = "UNKNOWN", f"memory could not be allocated: {error}"
            except RuntimeError as error:
                verdict, detail = "BAD", f"CUDA failed: {error}"
            yield f"{check.__name__.strip('_')} of GPU {index}", verdict, detail.splitlines()[0]


def _memory(device: torch.device) -> tuple[str, str]:
    free, _ = torch.cuda.mem_get_info(device)
    count = max(1, int(free * SHARE) // CHUNK)
    blocks = [torch.empty(CHUNK // 8, dtype=torch.int64, device=device) for _ in range(count)]
    for pattern in PATTERNS:
        for number, block in enumerate(blocks):
            block.fill_(pattern ^ number)
        for number, block in enumerate(blocks):
            wrong = int((block != (pattern ^ number)).sum())
            if wrong:
                return "BAD", f"{wrong} words of GiB {number} read back other than written"
    return "OK", f"{count} GiB hold {len(PATTERNS)} patterns"


def _compute(device: torch.device) -> tuple[str, str]:
    torch.backends.cuda.matmul.allow_tf32 = False
    maker = torch.Generator().manual_seed(1)
    left, right = (torch.randn(SIZE, SIZE, generator=maker) for _ in range(2))
    vector = torch.randn(SIZE, 1, generator=maker, dtype=torch.float64)
    reference = left.double() @ (right.double() @ vector)
    there = left.to(device), right.to(device)
    first = there[0] @ there[1]
    for _ in range(ROUNDS):
        if not torch.equal(there[0] @ there[1], first):
            return "BAD", "the same product came out differently"
    worst = float(((first.cpu().double() @ vector) - reference).abs().max() / reference.abs().max())
    if not worst < TOLERANCE:  # Also catches NaN.
        return "BAD", f"a {SIZE} x {SIZE} product is off its check by {worst:.2g} of its size"
    return "OK", f"{ROUNDS + 1} products of {SIZE} x {SIZE} are equal and right"
