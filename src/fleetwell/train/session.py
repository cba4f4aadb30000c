"""A worker's place in the job: its process group, the group we keep to ourselves, and its launcher's page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from .channel import Channel
from .errors import NotInitializedError
from .worker_env import CHANNEL, GENERATION, RUN_DIR, RUN_ID

_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Job:
    """What ``init()`` found. ``control`` is a gloo group of our own: saves and drains never mix with training."""

    rank: int
    world: int
    local_rank: int
    device: torch.device
    generation: int
    run_id: str
    run_dir: Path | None
    control: dist.ProcessGroup
    channel: Channel


_job: Job | None = None


def init(*, backend: str | None = None, timeout: timedelta = _TIMEOUT) -> Job:
    """Join the job: NCCL where this rank has a GPU, else gloo. Without a launcher it is a job of one rank.

    Set ``torch.set_num_threads`` and the like before; call it once, at the start of the script.
    """
    global _job  # noqa: PLW0603 - a process has one place in one job, as it has one default process group
    if _job is not None:
        return _job
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = backend or ("nccl" if cuda else "gloo")
        if "RANK" in os.environ:
            dist.init_process_group(backend, timeout=timeout)
        else:
            dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1, timeout=timeout)
    control = dist.new_group(backend="gloo", timeout=timeout)
    if not isinstance(control, dist.ProcessGroup):
        raise NotInitializedError("torch made no gloo group that this rank is part of")
    run_dir = os.environ.get(RUN_DIR)
    _job = Job(
        rank=dist.get_rank(),
        world=dist.get_world_size(),
        local_rank=local_rank,
        device=device,
        generation=int(os.environ.get(GENERATION, "0")),
        run_id=os.environ.get(RUN_ID, ""),
        run_dir=Path(run_dir) if run_dir else None,
        control=control,
        channel=Channel.open(os.environ.get(CHANNEL)),
    )
    return _job


def current() -> Job:
    """Return this worker's place in the job."""
    if _job is None:
        raise NotInitializedError("call fleetwell.train.init() first: this process has not joined a job")
    return _job
