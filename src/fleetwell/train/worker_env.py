"""The environment of a worker: torchrun's, so that any script written for torchrun runs, and ours for the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .protocol import Start
    from .settings import LaunchSettings

CHANNEL = "FLEETWELL_CHANNEL"
GENERATION = "FLEETWELL_GENERATION"
RUN_ID = "FLEETWELL_RUN_ID"
RUN_DIR = "FLEETWELL_RUN_DIR"


def worker_environment(
    inherited: Mapping[str, str], settings: LaunchSettings, start: Start, local_rank: int, channel: Path
) -> dict[str, str]:
    """Return the whole environment of the worker ``local_rank`` of this node."""
    node, nprocs = settings.node, start.nprocs
    rank, world = sum(nprocs[:node]) + local_rank, sum(nprocs)
    environment = dict(inherited)
    # a launcher that itself runs under torchrun's variables must not pass them on
    environment.pop("TORCHELASTIC_ERROR_FILE", None)
    environment.setdefault("PYTHONUNBUFFERED", "1")  # else the last words of a killed worker are lost in its pipe
    if nprocs[node] > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does: N ranks with N threads each thrash
    ranks = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": nprocs[node],
        "GROUP_RANK": node,
        "NODE_RANK": node,
        "GROUP_WORLD_SIZE": len(nprocs),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_PORT": start.master_port,
        "TORCHELASTIC_RESTART_COUNT": start.restarts,
        "TORCHELASTIC_MAX_RESTARTS": settings.max_restarts,
        GENERATION: start.generation,
    }
    environment.update({name: str(value) for name, value in ranks.items()})
    environment.update(
        {
            "ROLE_NAME": "default",
            "MASTER_ADDR": start.master_addr,
            "TORCHELASTIC_RUN_ID": settings.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0's worker hosts the store, a fresh one per generation
            CHANNEL: str(channel),
            RUN_ID: settings.run_id,
        }
    )
    if settings.run_dir is not None:
        environment[RUN_DIR] = str(settings.run_dir)
    return environment
