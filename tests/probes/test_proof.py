"""The proof, as the child that it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetwell.agent.deeds import judge
from fleetwell.api.node_operation import OperationPhase
from fleetwell.health.vocabulary import Verdict
from fleetwell.lab import machine
from fleetwell.lab.hardware import Hardware
from fleetwell.probes import launch
from fleetwell.probes.child import Answer, SupervisedChild
from fleetwell.probes.proof_cpu import CpuDevice, CpuProduct, Matrix
from fleetwell.probes.protocol import ProofRow, read_proof


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    return Hardware.create(machine.load("g6e.24xlarge"), tmp_path / "host", "seed")


async def prove(hardware: Hardware, *more: str) -> tuple[ProofRow, ...]:
    child = SupervisedChild("proof")
    argv = launch.python("proof", "--level", "quick", "--host-root", str(hardware.root), *more)
    environment = dict(launch.environment()) | {"FLEETWELL_NVML_STATE": str(hardware.state_file)}
    outcome = await child.run(argv, deadline=90, env=environment)
    assert isinstance(outcome, Answer), outcome
    return read_proof(outcome.output)


async def test_a_machine_that_is_well_passes(hardware: Hardware) -> None:
    rows = await prove(hardware, "--expect-gpus", "4")
    assert {row.verdict for row in rows} == {Verdict.OK}
    assert {row.check for row in rows} == {"driver", "memory", "compute"}
    assert judge(rows).phase is OperationPhase.SUCCEEDED


async def test_a_gpu_that_is_lost_or_missing_or_bad_fails(hardware: Hardware) -> None:
    with hardware.update() as state:
        state.gpus[0].volatile.lost = True
        state.gpus[1].lasting.absent = True
        state.gpus[2].lasting.rows_failed = True
    rows = await prove(hardware, "--expect-gpus", "4")
    said = " ".join(row.detail for row in rows if row.verdict is Verdict.BAD)
    assert "GpuMissing" in said
    assert "GpuRowRemapFailed" in said
    assert "GpuLost" in said
    assert judge(rows).phase is OperationPhase.FAILED


async def test_a_proof_that_cannot_compute_where_it_should_is_no_pass(hardware: Hardware) -> None:
    rows = await prove(hardware, "--expect-gpus", "4", "--device", "cuda")
    assert {row.check: row.verdict for row in rows}["compute"] is Verdict.UNKNOWN
    assert judge(rows).phase is OperationPhase.UNCERTAIN


@pytest.mark.torch
async def test_a_cuda_library_that_cannot_be_loaded_is_no_pass(hardware: Hardware) -> None:
    pytest.importorskip("torch")
    folder = hardware.root / "usr/lib64"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libcuda.so.1").write_text("no library")
    rows = await prove(hardware, "--expect-gpus", "4", "--device", "cuda")
    (compute,) = (row for row in rows if row.check == "compute")
    assert compute.verdict is Verdict.UNKNOWN
    assert "cannot be loaded" in compute.detail


def test_the_processors_own_product_is_right_and_a_flipped_bit_in_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert CpuDevice().product("integer", 16, 1).deviation() == (0, 0)
    multiply = CpuProduct.multiply

    def flip_one_bit(product: CpuProduct, left: Matrix, right: Matrix) -> Matrix:
        given = multiply(product, left, right)
        given[7][4] ^= 1 << 9
        return given

    monkeypatch.setattr(CpuProduct, "multiply", flip_one_bit)
    assert CpuDevice().product("integer", 16, 1).deviation()[0] > 0


@pytest.mark.torch
async def test_the_medium_level_runs_every_check_on_the_processor(hardware: Hardware) -> None:
    pytest.importorskip("torch")
    rows = await prove(hardware, "--level", "medium", "--deadline", "80")
    assert {row.check: row.verdict for row in rows} == dict.fromkeys(
        ("driver", "memory", "compute", "host link", "agreement", "peer links", "collective", "dcgm"), Verdict.OK
    )
    assert judge(rows).phase is OperationPhase.SUCCEEDED
