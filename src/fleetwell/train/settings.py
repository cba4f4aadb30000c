"""What ``fleetwell run`` was told, checked and complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds in seconds. No wait of the launcher is without one."""

    rendezvous: float = 600.0
    """How long the nodes of the next generation, or the coordinator, may be missing (torchrun's default)."""
    grace: float = 25.0
    """From SIGTERM to our exit; below Kubernetes' default terminationGracePeriodSeconds of 30."""
    stop: float = 5.0
    """From SIGTERM to SIGKILL of a worker whose generation is over."""
    kill: float = 5.0
    """From SIGKILL to giving a worker up: one in uninterruptible sleep stays for ever."""
    silence: float = 15.0
    """Without a word from the other side a connection counts as broken."""
    heartbeat: float = 0.25
    """Between two reports of a launcher's progress."""

    @property
    def ending(self) -> float:
        """How long a launcher may take to end its workers, as seen by the coordinator."""
        return self.stop + self.kill + 2 * self.heartbeat + 5.0


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """One launcher's part of a run. ``command`` is the worker's argument vector, complete."""

    command: tuple[str, ...]
    nnodes: int
    nproc: int
    node: int
    host: str
    port: int
    """Of the endpoint; 0 on a single node: any free one."""
    run_id: str = "none"
    max_restarts: int = 0
    local_address: str | None = None
    run_dir: Path | None = None
    limits: Limits = Limits()
