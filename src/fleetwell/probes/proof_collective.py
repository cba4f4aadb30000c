"""One rank of an all-reduce over all devices of the node: the sum must be right, and its bandwidth is told.

Each device has a process of its own, as in training. Whole numbers are summed, so the right sum is known exactly.
"""

from __future__ import annotations

import datetime as dt
import statistics
from pathlib import Path

import torch
from torch import distributed

from fleetwell.probes.proof_device import CannotTellError
from fleetwell.probes.proof_links import COLLECTIVE, WRONG, gbps
from fleetwell.probes.proof_rows import Measured, Tell
from fleetwell.probes.proof_thresholds import Level
from fleetwell.probes.proof_torch import timed

PERIOD = 251
"""Elements repeat after so many, a prime: what lands at another place is wrong there."""
WARM_UP = 2


class Rank:
    """This process's place among the others.

    :param store: a path that all ranks share, where no file is yet.
    """

    def __init__(self, device: torch.device, component: str, model: str, rank: int, ranks: int, store: Path) -> None:
        self._device = device
        self._component = component
        self._model = model
        self._rank = rank
        self._ranks = ranks
        self._store = store

    def run(self, level: Level, within: float, tell: Tell) -> None:
        """Meet the others, sum, and tell what this rank saw."""
        backend = "nccl" if self._device.type == "cuda" else "gloo"
        if backend == "nccl" and not distributed.is_nccl_available():
            raise CannotTellError("this torch has no NCCL")
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        distributed.init_process_group(
            backend,
            init_method=self._store.as_uri(),
            rank=self._rank,
            world_size=self._ranks,
            timeout=dt.timedelta(seconds=max(1.0, within)),
        )
        rates, wrong = self._sum(level)
        last = torch.zeros(1, device=self._device)
        # Nobody leaves while another may still read from its memory.
        timed(lambda: distributed.all_reduce(last), self._device)
        if wrong:
            tell(Measured(WRONG, self._component, self._model, rate=float(wrong)))
        tell(Measured(COLLECTIVE, self._component, self._model, rate=statistics.median(rates)))

    def _sum(self, level: Level) -> tuple[list[float], int]:
        count = (level.collective_mib << 20) // 4
        base = torch.arange(count, device=self._device).remainder_(PERIOD).float()
        should = base * self._ranks + self._ranks * (self._ranks - 1) / 2
        given = torch.empty_like(base)
        # What each link carries of it, whatever the number of ranks: "bus bandwidth" as NCCL's own tests count it.
        size = count * 4 * 2 * (self._ranks - 1) / self._ranks
        rates: list[float] = []
        wrong = 0
        for number in range(WARM_UP + level.collective_rounds):
            torch.add(base, self._rank, out=given)
            took = timed(lambda: distributed.all_reduce(given), self._device)
            if number >= WARM_UP:
                rates.append(gbps(int(size), took))
            wrong += int((given != should).sum())
        return rates, wrong
