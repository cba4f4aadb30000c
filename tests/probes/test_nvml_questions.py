"""What is made of NVML's answers, question by question."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetwell.health.vocabulary import Recovery, Verdict
from fleetwell.probes.report import Report
from probes.nvml_gpus import LOST, NO_SUCH_FUNCTION, NOT_SUPPORTED, UNKNOWN_ERROR, FakeGpu, Machine, bind
from probes.verdicts import faults, recovery, snapshot, worst

MakeMachine = Callable[..., Machine]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeMachine:
    bind(monkeypatch)
    return lambda count=8, name="NVIDIA H100 80GB HBM3": Machine(tmp_path, count, name)


def blind(report: Report) -> str:
    return "; ".join(json.loads(report.encode())["blind"])


def test_a_machine_that_is_well_has_no_fault_and_nothing_is_left_unasked(machine: MakeMachine) -> None:
    eight = machine()
    eight.look()
    seen = eight.look()
    assert faults(seen) == set()
    assert blind(seen) == ""


def _fields(**values: int) -> Callable[[FakeGpu], None]:
    return lambda gpu: gpu.fields.update({int(name[1:]): value for name, value in values.items()})


def _says(name: str, value: Any) -> Callable[[FakeGpu], None]:
    return lambda gpu: gpu.said.update({f"nvmlDeviceGet{name}": value})


def _ecc(**counts: int) -> Callable[[FakeGpu], None]:
    return lambda gpu: gpu.ecc.update(counts)


def _fabric(**values: int) -> Callable[[FakeGpu], None]:
    return lambda gpu: gpu.fabric.update(values)


@pytest.mark.parametrize(
    ("change", "fault", "verdict", "asks"),
    [
        (_fields(f230=2), "GpuRecoveryActionReboot", Verdict.BAD, Recovery.REBOOT),
        (_fields(f230=9), "GpuRecoveryActionUnknown", Verdict.UNKNOWN, Recovery.SUPPORT),
        (_says("RemappedRows", (0, 3, 1, 0)), "GpuRowRemapPending", Verdict.BAD, Recovery.RESET_GPU),
        (_says("RemappedRows", (0, 3, 0, 1)), "GpuRowRemapFailed", Verdict.BAD, Recovery.REPLACE),
        (_says("RemappedRows", (0, 512, 0, 0)), "GpuRowRemapFailed", Verdict.BAD, Recovery.REPLACE),
        (_ecc(uncorrected=1), "GpuEccUncorrectable", Verdict.BAD, Recovery.RESET_GPU),
        (_ecc(lifetime=513), "GpuMemoryWorn", Verdict.BAD, Recovery.SUPPORT),
        (_ecc(corrected=20_000_001), "GpuCorrectedErrors", Verdict.OK, Recovery.NONE),
        (lambda gpu: setattr(gpu, "sram", 1), "GpuSramThresholdExceeded", Verdict.BAD, Recovery.REPLACE),
        (_says("MarginTemperature", 0), "GpuOverheating", Verdict.BAD, Recovery.SUPPORT),
        (_says("CurrentClocksEventReasons", 0x48), "GpuThermalSlowdown", Verdict.BAD, Recovery.SUPPORT),
        (_says("CurrentClocksEventReasons", 0x88), "GpuPowerBrake", Verdict.BAD, Recovery.SUPPORT),
        (_says("CurrentClocksEventReasons", 0x08), "GpuHardwareSlowdown", Verdict.BAD, Recovery.SUPPORT),
        (_says("CurrPcieLinkWidth", 8), "PcieDegraded", Verdict.BAD, Recovery.REBOOT),
        (_says("CurrPcieLinkGeneration", 1), "PcieDegraded", Verdict.BAD, Recovery.REBOOT),
        (_fabric(status=999), "FabricIncomplete", Verdict.BAD, Recovery.REBOOT),
        (_fabric(state=7), "FabricIncomplete", Verdict.UNKNOWN, Recovery.REBOOT),
        (_fabric(healthMask=0x1A9), "FabricDegraded", Verdict.BAD, Recovery.REBOOT),
        (_fabric(healthMask=0x19A), "FabricDegraded", Verdict.BAD, Recovery.REBOOT),
        (_fabric(healthMask=0x16A), "FabricDegraded", Verdict.BAD, Recovery.REBOOT),
        (_fabric(healthMask=0x5AA), "FabricDegraded", Verdict.BAD, Recovery.REBOOT),
        (_fabric(healthMask=0x1AB), "FabricDegraded", Verdict.UNKNOWN, Recovery.SUPPORT),
        (_fabric(healthSummary=2), "FabricDegraded", Verdict.BAD, Recovery.REBOOT),
    ],
)
def test_an_answer_that_is_not_well_is_a_fault_of_that_gpu_alone(
    machine: MakeMachine, change: Callable[[FakeGpu], None], fault: str, verdict: Verdict, asks: Recovery
) -> None:
    eight = machine()
    change(eight.gpus[3])
    seen = eight.look()
    assert faults(seen) == {(fault, "gpu/GPU-3")}
    assert (worst(seen), recovery(seen)) == (verdict, asks)


@pytest.mark.parametrize(
    "change",
    [
        _ecc(lifetime=512, corrected=20_000_000),
        _says("RemappedRows", (600, 511, 0, 0)),
        _says("CurrentClocksEventReasons", 0x25),
        _fabric(state=0),
        _fabric(healthMask=0, healthSummary=0),
        lambda gpu: gpu.said.update(nvmlDeviceGetCurrPcieLinkGeneration=1, nvmlDeviceGetPerformanceState=8),
    ],
    ids=["history", "rows", "software limits", "no fabric", "no health", "an idle link"],
)
def test_what_only_looks_bad_is_no_fault(machine: MakeMachine, change: Callable[[FakeGpu], None]) -> None:
    eight = machine()
    change(eight.gpus[0])
    assert faults(eight.look()) == set()


def test_a_driver_without_the_recovery_action_is_judged_by_its_flags(machine: MakeMachine) -> None:
    eight = machine()
    eight.gpus[1].fields = {226: 1, 227: 0}
    eight.gpus[2].fields = {226: 0, 227: 1}
    assert faults(eight.look()) == {
        ("GpuRecoveryActionReset", "gpu/GPU-1"),
        ("GpuRecoveryActionDrainAndReset", "gpu/GPU-2"),
    }


def test_before_ampere_pages_are_asked_for_instead_of_rows(machine: MakeMachine) -> None:
    two = machine(2, "Tesla V100-SXM2-16GB")
    for gpu in two.gpus:
        gpu.said |= {"nvmlDeviceGetRemappedRows": NOT_SUPPORTED, "nvmlDeviceGetRetiredPagesPendingStatus": 0}
        gpu.said["nvmlDeviceGetRetiredPages"] = [1] * 31
    assert faults(two.look()) == set()
    two.gpus[0].said["nvmlDeviceGetRetiredPages"] = [1] * 32
    two.gpus[1].said["nvmlDeviceGetRetiredPagesPendingStatus"] = 1
    seen = two.look()
    assert faults(seen) == {("GpuRetiredPagesExceeded", "gpu/GPU-0"), ("GpuPageRetirementPending", "gpu/GPU-1")}
    assert "memory repair" not in blind(seen)


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_SUCH_FUNCTION])
def test_what_a_model_or_a_driver_does_not_tell_is_blind_and_not_well(machine: MakeMachine, error: Any) -> None:
    eight = machine()
    for gpu in eight.gpus:
        gpu.said |= {"nvmlDeviceGetRemappedRows": error, "nvmlDeviceGetPersistenceMode": error}
        gpu.said |= {"nvmlDeviceGetCurrentClocksEventReasons": error, "nvmlDeviceGetPcieReplayCounter": error}
        gpu.fields, gpu.link_fields, gpu.fabric_error = {}, {}, NOT_SUPPORTED
    seen = eight.look()
    assert faults(seen) == set()
    for question in ("memory repair", "persistence", "clock limits", "pcie replays", "recovery action", "fabric"):
        assert f"{question} is not told by 8 of 8 GPUs" in blind(seen)
    assert "nvlink errors is not told by 8 of 8 GPUs" in blind(seen)


def test_while_a_gpu_is_divided_its_rows_and_links_are_blind(machine: MakeMachine) -> None:
    eight = machine()
    eight.gpus[5].said |= {"nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetRemappedRows": NOT_SUPPORTED}
    eight.gpus[5].links = dict.fromkeys(range(18), False)
    seen = eight.look()
    assert faults(seen) == set()
    assert "1 of 8 GPUs are divided by MIG" in blind(seen)
    assert "memory repair is not told by 1 of 8 GPUs" in blind(seen)


def test_a_question_that_fails_on_one_gpu_hides_neither_its_others_nor_the_other_gpus(machine: MakeMachine) -> None:
    eight = machine()
    eight.gpus[0].said |= {"nvmlDeviceGetRemappedRows": UNKNOWN_ERROR, "nvmlDeviceGetMarginTemperature": -1}
    eight.gpus[1].said["nvmlDeviceGetPersistenceMode"] = LOST
    eight.gpus[7].ecc["uncorrected"] = 2
    seen = eight.look()
    assert faults(seen) == {
        ("GpuHandleError", "gpu/GPU-0"),
        ("GpuOverheating", "gpu/GPU-0"),
        ("GpuLost", "gpu/GPU-1"),
        ("GpuEccUncorrectable", "gpu/GPU-7"),
    }
    handle = next(one for one in snapshot(seen).observations if one.fault == "GpuHandleError")
    assert handle.verdict is Verdict.UNKNOWN


def test_persistence_mode_that_is_off_is_the_configurations_fault(machine: MakeMachine) -> None:
    eight = machine()
    for gpu in eight.gpus[:3]:
        gpu.said["nvmlDeviceGetPersistenceMode"] = 0
    seen = eight.look()
    assert faults(seen) == {("GpuPersistenceOff", "host")}
    assert worst(seen) is Verdict.CONFIG


def test_a_link_is_down_where_it_must_be_up_whatever_the_neighbours_have(machine: MakeMachine) -> None:
    eight = machine()
    for gpu in eight.gpus:
        gpu.links[4] = False
    assert len(faults(eight.look())) == 8  # They have joined a fabric, so each link leads to a switch.


@pytest.mark.parametrize(("count", "down"), [(8, 8), (4, 0), (1, 0)])
def test_without_a_fabric_only_a_whole_board_must_have_all_its_links(
    machine: MakeMachine, count: int, down: int
) -> None:
    some = machine(count, "NVIDIA A100-SXM4-80GB")
    for gpu in some.gpus:
        gpu.fabric_error = NOT_SUPPORTED
        gpu.links = dict.fromkeys(range(12), True) | {4: False}
    assert len(faults(some.look())) == down


def test_a_bridge_that_leaves_a_link_unused_is_no_fault_but_one_that_most_gpus_have_is(machine: MakeMachine) -> None:
    four = machine(4, "NVIDIA A40")
    for gpu in four.gpus:
        gpu.fabric_error = NOT_SUPPORTED
        gpu.links = {0: True, 1: False, 2: True, 3: True}
    four.gpus[2].links[3] = False
    assert faults(four.look()) == {("NvlinkDown", "nvlink/GPU-2/3")}


def test_pcie_is_compared_with_equal_gpus_and_a_narrow_machine_is_only_noted(machine: MakeMachine) -> None:
    four = machine(4, "NVIDIA L4")
    for gpu in four.gpus:
        gpu.said |= {"nvmlDeviceGetCurrPcieLinkWidth": 8, "nvmlDeviceGetCurrPcieLinkGeneration": 4}
        gpu.fabric_error = NOT_SUPPORTED
    seen = four.look()
    assert faults(seen) == set()
    assert "x8 of x16 on all equal GPUs" in blind(seen)
    four.gpus[1].load = 90
    assert faults(four.look()) == {("PcieDegraded", "gpu/GPU-1")}
