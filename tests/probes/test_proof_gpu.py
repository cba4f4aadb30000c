"""The proof on real GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetwell.agent.deeds import judge
from fleetwell.api.node_operation import OperationPhase
from fleetwell.probes import driver, launch
from fleetwell.probes.child import Answer, SupervisedChild
from fleetwell.probes.protocol import read_proof

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(driver.cuda(Path("/")) is None, reason="needs a real NVIDIA GPU: no libcuda.so.1 here"),
]


@pytest.mark.parametrize(("level", "deadline"), [("quick", 300), ("medium", 600)])
async def test_a_gpu_that_is_well_passes(level: str, deadline: float) -> None:
    child = SupervisedChild("proof")
    argv = launch.python("proof", "--level", level, "--device", "cuda", "--deadline", str(deadline))
    outcome = await child.run(argv, deadline=deadline, env=launch.environment())
    assert isinstance(outcome, Answer), outcome
    rows = read_proof(outcome.output)
    assert judge(rows).phase is OperationPhase.SUCCEEDED, rows
    assert {"driver", "memory", "compute"} <= {row.check for row in rows}
