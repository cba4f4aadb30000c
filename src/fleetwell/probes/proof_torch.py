"""A device of the proof that torch computes on: a CUDA device, and in tests a processor.

What is checked is computed on the device; what it is checked against, on the host in float64.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from fleetwell.probes.proof_device import WORD, Block, CannotTellError, DeviceFailedError, Flip, Vitals
from fleetwell.probes.proof_thresholds import Pattern

CHUNK_BYTES = 256 << 20
"""Bytes of one block of tested memory; the check of a block needs about two and a quarter as much beside it."""
SCRATCH_CHUNKS = 3
SAMPLED_ROWS = 64
ROWS_AT_ONCE = 512
"""Rows of a matrix that are turned into float64 at a time: eight workers share the host's memory."""
_HARDWARE = (
    "uncorrectable ecc",
    "unspecified launch failure",
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "hardware stack error",
    "invalid program counter",
    "nvlink",
    "device-side assert",
    "launch timed out",
    "contained",
    "gpu has fallen",
)
"""Texts of CUDA errors that only the device can be the cause of: the proof's own kernels access nothing that they must
not. Any other error leaves open whose fault it is."""


@contextmanager
def failures() -> Iterator[None]:
    """Tell a device that failed from a test that could not be carried out.

    :raises CannotTellError: no memory, no context, an error that says nothing of the device.
    :raises DeviceFailedError: an error that only the device can be the cause of.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise CannotTellError(f"memory could not be allocated: {_first_line(error)}") from error
    except RuntimeError as error:
        said = _first_line(error)
        if any(text in said.lower() for text in _HARDWARE):
            raise DeviceFailedError(f"CUDA failed: {said}") from error
        raise CannotTellError(f"CUDA did not do it: {said}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


class TorchBlock:
    """A piece of device memory. Its addresses' words are made from one piece of scratch that all blocks share."""

    def __init__(self, words: int, count: torch.Tensor, should: torch.Tensor) -> None:
        self.words = words
        self.held = torch.empty(words, dtype=torch.int64, device=count.device)
        self._count = count
        self._should = should

    def write(self, pattern: Pattern, first: int) -> None:
        """Fill it."""
        self._fill(self.held, pattern, first)

    def verify(self, pattern: Pattern, first: int) -> Flip | None:
        """Read it back."""
        should = self._should
        self._fill(should, pattern, first)
        if torch.equal(self.held, should):
            return None
        wrong = (self.held != should).nonzero()
        word = int(wrong[0])
        wrote, read = int(should[word]), int(self.held[word])
        return Flip(word=word, wrote=wrote & (1 << 64) - 1, read=read & (1 << 64) - 1, words=int(wrong.numel()))

    def _fill(self, into: torch.Tensor, pattern: Pattern, first: int) -> None:
        if not pattern.times:
            into.fill_(_signed(pattern.flip))
            return
        # Whole numbers of 64 bits wrap around on overflow, as the pattern's arithmetic does.
        torch.add(self._count, first, out=into)
        into.mul_(_signed(pattern.times)).bitwise_xor_(_signed(pattern.flip))


class TorchProduct:
    """A product of normally distributed numbers, which are made on the host and so the same for every device."""

    def __init__(self, device: torch.device, dtype: torch.dtype, size: int, seed: int) -> None:
        maker = torch.Generator().manual_seed(seed)
        self._left, self._right = (torch.randn(size, size, generator=maker).to(dtype) for _ in range(2))
        self._signs = torch.randint(0, 2, (size, 1), generator=maker).double().mul_(2).sub_(1)
        self._rows = torch.randint(0, size, (SAMPLED_ROWS,), generator=maker)
        self._there = self._left.to(device), self._right.to(device)
        self.first = self._there[0] @ self._there[1]
        self._again = torch.empty_like(self.first)
        self._bits = torch.int16 if dtype.itemsize == 2 else torch.int32
        self._size = size

    def deviation(self) -> tuple[float, float]:
        """Compare sampled rows element by element, and all rows by their sum with random signs."""
        product = self.first.cpu()
        rms = math.sqrt(self._size)
        sampled = self._left[self._rows].double()
        element = 0.0
        for at in range(0, self._size, ROWS_AT_ONCE):
            columns = slice(at, at + ROWS_AT_ONCE)
            reference = sampled @ self._right[:, columns].double()
            off = (product[self._rows, columns].double() - reference).abs() / (reference.abs() + rms)
            element = _larger(element, float(off.max()))
        reference = _applied(self._left, _applied(self._right, self._signs))
        off = (_applied(product, self._signs) - reference).abs() / (rms * rms)
        return element, float(off.max())

    def digest(self) -> str:
        """Tell its bits."""
        return hashlib.sha256(self.first.view(self._bits).cpu().numpy().tobytes()).hexdigest()

    def repeat(self, times: int) -> int:
        """Compute it again; what differs is counted on the device, so that the load has no pauses."""
        differing = torch.zeros((), dtype=torch.int64, device=self.first.device)
        bits = self.first.view(self._bits)
        for _ in range(times):
            torch.mm(*self._there, out=self._again)
            differing += (self._again.view(self._bits) != bits).any()
        return int(differing)  # Waits for the device.


def _larger(one: float, other: float) -> float:
    return other if math.isnan(other) else max(one, other)


def _applied(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.double() @ vector for part in torch.split(matrix, ROWS_AT_ONCE)])


class TorchDevice:
    """One device of torch's.

    :param vitals: reads heat and clocks of this device.
    """

    def __init__(
        self,
        device: torch.device,
        component: str,
        model: str,
        vitals: Callable[[], Vitals | None],
        *,
        chunk: int = CHUNK_BYTES,
        memory: int | None = None,
    ) -> None:
        self.component = component
        self.model = model
        self._device = device
        self._vitals = vitals
        self._chunk = chunk
        self._memory = memory
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def free(self) -> int:
        """Give the free memory of the device."""
        if self._memory is not None:
            return self._memory
        return int(torch.cuda.mem_get_info(self._device)[0])

    def hold(self, size: int) -> list[Block]:
        """Allocate it, in chunks; what the check itself needs is taken off."""
        chunks = size // self._chunk - SCRATCH_CHUNKS
        if chunks < 1:
            raise CannotTellError(f"{size >> 20} MiB of free memory are too few to test any")
        words = self._chunk // WORD
        count = torch.arange(words, dtype=torch.int64, device=self._device)
        should = torch.empty_like(count)
        return [TorchBlock(words, count, should) for _ in range(chunks)]

    def product(self, dtype: str, size: int, seed: int) -> TorchProduct:
        """Make inputs on the host and multiply them here."""
        return TorchProduct(self._device, _DTYPES[dtype], size, seed)

    def host_copy(self, size: int) -> tuple[float, float, bool]:
        """Copy from and to pinned host memory."""
        pinned = self._device.type == "cuda"
        out = torch.empty(size // WORD, dtype=torch.int64, pin_memory=pinned)
        torch.arange(out.numel(), out=out)
        back = torch.zeros(out.numel(), dtype=torch.int64, pin_memory=pinned)
        there = torch.empty(out.numel(), dtype=torch.int64, device=self._device)
        to = timed(lambda: there.copy_(out, non_blocking=True), self._device)
        fro = timed(lambda: back.copy_(there, non_blocking=True), self._device)
        return to, fro, torch.equal(out, back)

    def vitals(self) -> Vitals | None:
        """Read heat and clocks."""
        return self._vitals()


_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class TorchLinks:
    """All devices of a node, in one process."""

    def __init__(self, devices: tuple[torch.device, ...], components: tuple[str, ...], model: str) -> None:
        self.components = components
        self.model = model
        self._devices = devices
        self._sent: dict[tuple[int, int], torch.Tensor] = {}

    def copy(self, source: int, target: int, size: int) -> tuple[float, bool]:
        """Copy from one device to another."""
        sent, should = self._words(source, source, size), self._words(target, source, size)
        got = torch.zeros_like(should)
        took = timed(lambda: got.copy_(sent, non_blocking=True), self._devices[target], self._devices[source])
        return took, torch.equal(got, should)

    def _words(self, device: int, source: int, size: int) -> torch.Tensor:
        """Give what ``source`` sends, made on ``device`` itself."""
        key = (device, source)
        if key not in self._sent:
            for stale in [one for one in self._sent if one[0] != one[1]]:
                del self._sent[stale]
            words = torch.arange(size // WORD, dtype=torch.int64, device=self._devices[device])
            self._sent[key] = words.mul_(2 * source + 3)
        return self._sent[key]


def timed(copy: Callable[[], object], *devices: torch.device) -> float:
    """Give the seconds that it takes until all these devices have done it."""
    for device in devices:
        _wait(device)
    began = time.perf_counter()
    copy()
    for device in devices:
        _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
