"""A worker that dies of its GPU is reported by its launcher, and the node's agent answers what it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetwell.lab import workloads
from fleetwell.lab.ports import free_ports
from fleetwell.lab.site import example
from scenarios.field import Field

pytestmark = pytest.mark.controlplane
NODES = 1
CONTROLLER = False
JOB = "reporting"


def log_of(field: Field) -> str:
    """What the job's launcher has said so far."""
    return "".join(path.read_text() for path in field.lab.site.node("gpu-1").pods.glob(f"default_{JOB}-*/train.log"))


async def test_a_worker_that_dies_of_its_gpu_is_reported_to_the_agent_of_its_node(field: Field, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    await field.apply(
        workloads.training_job(
            JOB,
            example("train_ddp.py"),
            tmp_path,
            f"127.0.0.1:{port}",
            nodes=1,
            ranks_per_node=2,
            arguments=["--steps", "100000", "--step-ms", "20", "--every", "50"],
        )
    )

    async def steps() -> bool:
        return any((tmp_path / "checkpoints").glob("step-*"))

    async def answered() -> bool:
        return "the node's agent looked" in log_of(field)

    await field.until("the job steps", steps, 90)
    await field.inject("gpu-lost", "gpu-1", 0)
    await field.until("the launcher has the agent's answer", answered, 40)
    told = next(line for line in log_of(field).splitlines() if "the node's agent looked" in line)
    assert "BAD" in told
    assert "GpuFallenOffBus" in told
