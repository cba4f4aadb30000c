"""The training loop's step boundaries: where progress is told, checkpoints are made, and drains are agreed.

A drain must never let one rank save without the others. So the request travels in band: every so many steps all ranks
take the maximum of "was I asked to drain?" in a gloo group of their own. The result is the same everywhere at the same
step, whichever launchers asked and whenever the request reached them, so there is nothing to race with. What one such
all-reduce costs is measured as it goes (0.2 ms on an idle host, over 1 ms with more ranks than cores), and the pace
keeps it under 0.3 % of the time; but it comes at least every 32 steps.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import structlog
import torch
import torch.distributed as dist

from . import session
from .channel import WorkerPhase
from .errors import Drained, NotInitializedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .checkpoint import Checkpointer

_PACE = 0.07  # seconds between agreements, at least: a drain has tens of seconds
_SHARE = 0.003  # of the time that agreements may cost
_MOST_STEPS = 32
_log = structlog.get_logger()


def stride_for(step_seconds: float, cost_seconds: float) -> int:
    """Return how many steps go by until the next agreement, by the slowest rank's step and an agreement's cost."""
    if step_seconds <= 0:
        return 1
    pace = max(_PACE, cost_seconds / _SHARE)
    return min(_MOST_STEPS, max(1, math.ceil(pace / step_seconds)))


class _Agreement:
    """Asks all ranks, at steps on which they agree too, whether any of them has to leave."""

    def __init__(self, job: session.Job, first: int) -> None:
        self._job = job
        self._next = first
        self._asked_at = first
        self._since: float | None = None
        self._cost = 0.0

    def drain(self, completed: int) -> bool:
        """Whether all ranks drain at this boundary."""
        if completed < self._next:
            return False
        began = time.monotonic()
        steps = completed - self._asked_at
        spent = (began - self._since) / steps if self._since is not None and steps else 0.0
        flag = int(self._job.channel.drain_asked)
        # The rank that comes last waits for nobody: the least of the times is what the agreement itself takes.
        mine = torch.tensor([flag, math.ceil(spent * 1e6), -math.ceil(self._cost * 1e6)], dtype=torch.int64)
        dist.all_reduce(mine, dist.ReduceOp.MAX, group=self._job.control)
        asked, slowest, cost = mine.tolist()
        self._since, self._asked_at = time.monotonic(), completed
        self._cost = self._since - began
        self._next = completed + stride_for(slowest / 1e6, -cost / 1e6)
        return bool(asked)


def steps(total: int, checkpointer: Checkpointer | None = None) -> Iterator[int]:
    """Yield the steps that are left of ``total``, from where ``checkpointer.resume`` found the run.

    Saves every ``checkpointer.every`` steps and after the last one. When a node of the job has to leave, all ranks save
    at the same boundary and ``Drained`` (a SystemExit with code 0) ends the script. Without a checkpointer the run
    starts at 0 and a drain leaves without saving.
    """
    job = session.current()
    if checkpointer is not None and checkpointer.resumed_step is None:
        raise NotInitializedError("call checkpointer.resume(...) before the loop")
    completed = (checkpointer.resumed_step or 0) if checkpointer is not None else 0
    agreement = _Agreement(job, completed)
    job.channel.resumed = job.channel.step = completed
    job.channel.phase = WorkerPhase.STEPPING
    while completed < total:
        if agreement.drain(completed):
            _leave(job, completed, checkpointer)
        yield completed
        completed += 1
        job.channel.step = completed
        if checkpointer is not None and (checkpointer.due(completed) or completed == total):
            checkpointer.save(completed)


def _leave(job: session.Job, completed: int, checkpointer: Checkpointer | None) -> None:
    if checkpointer is not None and completed > checkpointer.saved_step:
        checkpointer.save(completed)
    dist.barrier(group=job.control)
    job.channel.phase = WorkerPhase.DRAINED
    if job.rank == 0:
        _log.info("all ranks leave at the same step", step=completed, saved=checkpointer is not None)
    raise Drained(completed)
