"""Probes as the agent runs them, on virtual hardware with the mock NVML."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path

import pytest

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import read_boot
from fleetwell.agent.kernel_events import KernelEvents
from fleetwell.agent.settings import Timing
from fleetwell.agent.sources import ChildSource
from fleetwell.health.vocabulary import ConditionStatus, ConditionType
from fleetwell.lab import machine
from fleetwell.lab.hardware import STATE_VARIABLE, Hardware
from fleetwell.lab.nvml_state import Where
from fleetwell.probes import SYSFS_PROBES, launch
from fleetwell.probes.inventory import Expected, MachineMemory, told


class Node:
    """One virtual machine and the agent's view of it."""

    def __init__(self, tmp_path: Path, said: Expected) -> None:
        self.hardware = Hardware.create(machine.load("p5.48xlarge"), tmp_path / "host", "seed")
        self.state = tmp_path
        self.begin(said, MachineMemory(serial=self.hardware.state.dmi_serial))

    def begin(self, said: Expected, memory: MachineMemory) -> None:
        self.assessment = Assessment(read_boot(self.hardware.root, "node-1"), memory, said)
        timing = Timing(interval=60, deadline=20)
        self.nvml = ChildSource("nvml", ("nvml",), timing, self.asked, self.assessment)
        self.sysfs = ChildSource("sysfs", SYSFS_PROBES, timing, self.asked, self.assessment)
        self.kernel = KernelEvents(self.hardware.root / "dev/kmsg", self.state / "kernel_log.json", self.assessment)

    def asked(self) -> dict[str, object]:
        return {
            "host_root": str(self.hardware.root),
            "nvml_memory": str(self.state / "nvml.json"),
            "nic_memory": str(self.state / "nics.json"),
            **told(self.assessment.expected, self.assessment.memory),
        }

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.nvml.look()
            await self.sysfs.look()
            self.kernel.tail.start()
            await self.kernel.tail.caught_up.wait()
            self.kernel.report()
            self.kernel.tail.close()

    def faults(self) -> set[str]:
        return {finding.fault for finding in self.assessment.findings}

    def condition(self, kind: ConditionType) -> ConditionStatus:
        return next(one.status for one in self.assessment.conditions() if one.type is kind)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path, Expected())
    monkeypatch.setenv(STATE_VARIABLE, str(made.hardware.state_file))
    launch.environment.cache_clear()
    return made


async def test_a_healthy_machine_is_well_after_one_look_and_not_before(node: Node) -> None:
    assert {one.status for one in node.assessment.conditions()} == {ConditionStatus.UNKNOWN}
    await node.look()
    assert {one.status for one in node.assessment.conditions()} == {ConditionStatus.TRUE}
    status = node.assessment.status()
    assert status.settled
    assert (status.seen.gpus, status.seen.nics) == (8, 32)
    assert len(status.machine.gpus) == 8


async def test_a_failed_row_remap_is_found_at_the_first_look(node: Node) -> None:
    with node.hardware.update() as state:
        state.gpus[3].lasting.rows_failed = True
    await node.look()
    assert node.faults() == {"GpuRowRemapFailed"}
    assert node.condition(ConditionType.GPU_MEMORY) is ConditionStatus.FALSE
    assert node.condition(ConditionType.GPU) is ConditionStatus.TRUE


async def test_a_lost_gpu_is_named_and_the_others_are_still_judged(node: Node) -> None:
    await node.look()
    with node.hardware.update() as state:
        state.gpus[2].volatile.lost = True
        state.gpus[5].lasting.rows_failed = True
    await node.look(2)
    uuid = node.hardware.state.gpus[2].uuid
    assert {"GpuLost", "GpuRowRemapFailed", "GpuFallenOffBus"} <= node.faults()
    assert {one.component for one in node.assessment.findings if one.fault == "GpuLost"} == {f"gpu/{uuid}"}


async def test_one_look_at_nvml_finds_what_is_wrong_with_each_gpu(node: Node) -> None:
    with node.hardware.update() as state:
        gpus = state.gpus
        gpus[0].volatile.fabric_health = 0xA9
        gpus[1].volatile.pcie_width = 8
        gpus[2].volatile.sram_threshold = True
        gpus[3].volatile.links_down = {4}
        gpus[4].lasting.ecc_uncorrected = 1000
        gpus[5].volatile.throttle = 0x80
        gpus[6].lasting.persistence = False
        gpus[7].volatile.pcie_gen = 1
    await node.nvml.look()
    await node.nvml.look()
    found = {(finding.fault, finding.component[-2:]) for finding in node.assessment.findings}
    ends = [gpu.uuid[-2:] for gpu in node.hardware.state.gpus]
    assert found == {
        ("FabricDegraded", ends[0]),
        ("PcieDegraded", ends[1]),
        ("GpuSramThresholdExceeded", ends[2]),
        ("NvlinkDown", "/4"),
        ("GpuMemoryWorn", ends[4]),
        ("GpuPersistenceOff", "st"),
        ("PcieDegraded", ends[7]),
    }
    await node.nvml.look()
    assert "GpuPowerBrake" in node.faults()  # Only what lasts over several looks is believed.


async def test_error_counters_are_kept_by_the_child_from_look_to_look(node: Node) -> None:
    await node.nvml.look()
    kept = json.loads((node.state / "nvml.json").read_text())
    kept["at"] -= 60
    kept["streaks"] = {f"{node.hardware.state.gpus[2].uuid} 163/5": 1}
    (node.state / "nvml.json").write_text(json.dumps(kept))
    with node.hardware.update() as state:
        state.gpus[2].volatile.link_errors = {5: [0, 0, 900_000, 0, 0]}
    await node.nvml.look()
    await node.nvml.look()
    assert {(one.fault, one.component) for one in node.assessment.findings} == {
        ("NvlinkErrorRate", f"nvlink/{node.hardware.state.gpus[2].uuid}/5")
    }


async def test_a_gpu_that_is_not_enumerated_is_missing_by_name(node: Node) -> None:
    await node.look()
    with node.hardware.update() as state:
        state.gpus[7].lasting.absent = True
    await node.look(2)
    assert "GpuMissing" in node.faults()
    uuid = node.hardware.state.gpus[7].uuid
    assert {one.component for one in node.assessment.findings} == {f"gpu/{uuid}"}
    assert node.condition(ConditionType.GPU) is ConditionStatus.FALSE


async def test_a_machine_that_never_had_all_its_gpus_is_short_by_its_type(node: Node) -> None:
    with node.hardware.update() as state:
        state.gpus[7].lasting.absent = True
    await node.look(2)
    assert {(one.fault, one.component) for one in node.assessment.findings} == {("GpuMissing", "host")}


async def test_a_missing_efa_interface_is_a_fault_only_where_it_was_seen_or_asked_for(node: Node) -> None:
    name = node.hardware.machine.nics[4].name
    with node.hardware.update() as state:
        state.missing_nics.add(name)
    await node.look(3)
    assert node.faults() == set()  # 31 of at most 32: perhaps nobody asked for more.
    with node.hardware.update() as state:
        state.missing_nics.clear()
    await node.look()
    with node.hardware.update() as state:
        state.missing_nics.add(name)
    await node.look(3)
    assert {(one.fault, one.component) for one in node.assessment.findings} == {("EfaMissing", f"nic/{name}")}


async def test_a_driver_that_hangs_is_unknown_within_the_deadline(node: Node) -> None:
    await node.look()
    with node.hardware.update() as state:
        state.driver.hang = Where.ANY
    node.nvml._timing = Timing(interval=60, deadline=0.5)
    started = time.monotonic()
    await node.nvml.look()
    assert time.monotonic() - started < 2
    assert node.faults() == {"ProbeHung"}
    assert node.condition(ConditionType.GPU) is ConditionStatus.UNKNOWN
    assert node.condition(ConditionType.MONITORING) is ConditionStatus.UNKNOWN
    assert node.condition(ConditionType.NETWORK) is ConditionStatus.TRUE


async def test_a_driver_that_crashes_its_caller_is_unknown_after_the_probes_debounce(node: Node) -> None:
    with node.hardware.update() as state:
        state.driver.crash = Where.ANY
    await node.look(2)
    assert node.faults() == {"ProbeCrashed"}
    assert node.condition(ConditionType.GPU) is ConditionStatus.UNKNOWN


async def test_a_driver_that_is_gone_is_a_fault_where_gpus_must_be(node: Node) -> None:
    node.hardware.state_file.unlink()
    await node.look(2)
    assert "DriverNotLoaded" in node.faults()


async def test_a_machine_without_gpus_is_blind_and_not_bad(node: Node) -> None:
    node.hardware.state_file.unlink()
    node.assessment.instance_type = "m7i.large"
    node.assessment.expect_anew()
    await node.nvml.look()
    assert node.faults() == set()
    assert {probe.state for probe in node.assessment.status().probes} == {"Blind"}


async def test_a_kernel_line_names_the_gpu_that_nvml_knows(node: Node) -> None:
    await node.look()
    node.kernel.name_devices()
    pci = node.hardware.machine.gpu.pci[1].removesuffix(".0")
    node.hardware.write_kernel(
        f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    await node.look()
    uuid = node.hardware.state.gpus[1].uuid
    assert {(one.fault, one.component) for one in node.assessment.findings} == {("GpuFallenOffBus", f"gpu/{uuid}")}


async def test_a_restarted_agent_adopts_findings_and_reads_no_old_line_as_new(node: Node) -> None:
    await node.look()
    pci = node.hardware.machine.gpu.pci[1].removesuffix(".0")
    node.hardware.write_kernel(
        f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    await node.look()
    published, conditions = node.assessment.status(), node.assessment.conditions()
    node.begin(Expected(), node.assessment.memory)
    node.assessment.adopt(published, conditions, node.kernel.judged_until())
    assert node.assessment.conditions() == conditions
    await node.look()
    assert [one.count for one in node.assessment.findings] == [1]
    assert node.assessment.conditions() == conditions


async def test_just_after_a_boot_a_look_that_misses_something_is_repeated_first(node: Node) -> None:
    with node.hardware.update() as state:
        state.gpus[0].lasting.absent = True
    node.nvml._timing = Timing(interval=60, deadline=20, boot_grace=3600)
    for _ in range(3):
        assert await node.nvml.look() <= 2
    assert node.faults() == set()
    assert node.condition(ConditionType.GPU) is ConditionStatus.UNKNOWN
    with node.hardware.update() as state:
        state.gpus[0].lasting.absent = False
    assert await node.nvml.look() > 2
    with node.hardware.update() as state:
        state.gpus[0].lasting.absent = True
    await node.nvml.look()
    await node.nvml.look()
    assert node.faults() == {"GpuMissing"}


async def test_what_cannot_come_late_is_believed_just_after_a_boot(node: Node) -> None:
    with node.hardware.update() as state:
        state.gpus[0].lasting.rows_failed = True
    node.nvml._timing = Timing(interval=60, deadline=20, boot_grace=3600)
    await node.nvml.look()
    assert node.faults() == {"GpuRowRemapFailed"}


async def test_a_paused_probe_says_so_and_looks_at_the_end_of_the_pause(node: Node) -> None:
    with node.nvml.paused():
        assert {probe.state for probe in node.assessment.status().probes} == {"Paused"}
        assert not node.nvml._resumed.is_set()
    assert node.nvml._triggered.is_set()


async def test_looks_that_are_asked_for_begin_after_the_question_and_are_waited_for(node: Node) -> None:
    took: list[str] = []
    node.sysfs.on_look = lambda source, _seconds: took.append(source)
    running = asyncio.create_task(node.sysfs.run())
    await node.sysfs.look_anew(2)
    # One may have begun before the question; it does not count.
    assert 2 <= len(took) <= 3
    assert node.sysfs.outcomes["answer"] == len(took)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
