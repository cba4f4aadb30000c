"""Throwaway iterations before any state counts, so that a resumed run computes in the order of the undisturbed one.

DDP rebuilds its buckets at the second iteration, in the order in which gradients really became ready. Sums of floats
depend on that order, so the first two iterations after a start differ from the ones they repeat (1e-8 with 4 ranks).
Two rehearsed forward and backward passes put every generation, the first one too, behind that point.
"""

from __future__ import annotations

import copy
import random
import sys
from typing import TYPE_CHECKING, Protocol

import msgspec
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PASSES = 2


class Stateful(Protocol):
    """Something else with a place to resume at: a sampler, a schedule. Its state is plain data."""

    def state_dict(self) -> dict[str, object]:
        """Return the state as numbers, strings, bytes, lists and dicts of them."""

    def load_state_dict(self, state_dict: dict[str, object], /) -> object:
        """Take the state back."""


class RngState(msgspec.Struct, frozen=True):
    """Every generator of random numbers that a script may have drawn from on this rank."""

    torch_cpu: bytes
    torch_cuda: bytes | None
    python: tuple[int, tuple[int, ...], float | None]
    numpy: tuple[str, bytes, int, int, float] | None

    @classmethod
    def capture(cls) -> RngState:
        """Read the generators as they are now; numpy's only where the script uses numpy."""
        version, words, gauss = random.getstate()
        drawn = None
        if "numpy" in sys.modules:
            import numpy as np  # noqa: PLC0415 - only where the script imported it already

            name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002 - the global one
            drawn = (str(name), np.asarray(keys).tobytes(), int(position), int(has_gauss), float(cached))
        cuda = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        return cls(
            torch_cpu=torch.get_rng_state().numpy().tobytes(),
            torch_cuda=torch.cuda.get_rng_state().numpy().tobytes() if cuda else None,
            python=(version, words, gauss),
            numpy=drawn,
        )

    def restore(self) -> None:
        """Put the generators back."""
        torch.set_rng_state(_bytes(self.torch_cpu))
        if self.torch_cuda is not None:
            torch.cuda.set_rng_state(_bytes(self.torch_cuda))
        random.setstate(self.python)
        if self.numpy is not None:
            import numpy as np  # noqa: PLC0415 - as above

            name, keys, position, has_gauss, cached = self.numpy
            state = (name, np.frombuffer(keys, dtype=np.uint32), position, has_gauss, cached)
            np.random.set_state(state)  # noqa: NPY002 - the global one is what scripts draw from


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def warm_up(
    model: torch.nn.Module,
    rehearse: Callable[[], torch.Tensor],
    *,
    extra: Mapping[str, Stateful] | None = None,
) -> None:
    """Run forward and backward twice and leave no trace: gradients, buffers, random numbers and ``extra`` as before.

    ``rehearse`` computes a loss of ``model`` on some batch of the real shape. No optimizer step may happen in it.
    """
    rng = RngState.capture()
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    places = {name: copy.deepcopy(item.state_dict()) for name, item in (extra or {}).items()}
    for _ in range(PASSES):
        rehearse().backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        for parameter in model.parameters():
            parameter.grad = None
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
    for name, item in (extra or {}).items():
        item.load_state_dict(places[name])
    rng.restore()
