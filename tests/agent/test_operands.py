"""The GPU operator pauses its parts, and our GPU probes with them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pytest

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import Boot
from fleetwell.agent.operands import INTERVAL, PREFIX, Operands
from fleetwell.agent.settings import Settings
from fleetwell.agent.watch import Watch
from fleetwell.api.node_health import NodeHealthStatus, ProbeStatus
from fleetwell.health.vocabulary import (
    BootId,
    Component,
    ConditionStatus,
    ConditionType,
    FaultName,
    Observation,
    Recovery,
    Snapshot,
    Verdict,
)
from fleetwell.probes.inventory import Expected, MachineMemory

BOOT = Boot(boot_id=BootId("boot-1"), booted_at=1.0, serial="s1", instance_type="", driver_branch=570)
RUNNING = {f"{PREFIX}driver": "true", f"{PREFIX}dcgm": "true", f"{PREFIX}mig-manager": "false"}
UPGRADING = RUNNING | {f"{PREFIX}driver": "paused-for-driver-upgrade"}
HOUR = 3600.0


class Node:
    """An agent's view of one node, with clocks that a test sets."""

    def __init__(self, tmp_path: Path) -> None:
        self.now = 1_800_000_000.0
        self.assessment = Assessment(
            BOOT, MachineMemory(serial="s1"), Expected(gpus=8), wall=lambda: self.now, on_change=lambda: None
        )
        self.settings = Settings(node_name="n", host_root=tmp_path, state_dir=tmp_path)
        self.watch = Watch(self.settings, self.assessment, monotonic=lambda: self.now)
        self.operands = Operands(
            self.assessment,
            (self.watch.main[0], *self.watch.others),
            HOUR,
            wall=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def found(self) -> list[str]:
        return [finding.fault for finding in self.assessment.findings]

    def states(self) -> dict[str, str]:
        return {one.name: one.state for one in self.assessment.status().probes}

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.operands.look()

    def condition(self, kind: ConditionType) -> ConditionStatus:
        return next(one.status for one in self.assessment.conditions() if one.type is kind)

    def nvml(self, *faults: str) -> None:
        """Have NVML look, and find these on one GPU."""
        component = Component("gpu/GPU-1")
        seen = tuple(
            Observation(
                probe="nvml",
                fault=FaultName(fault),
                component=component,
                verdict=Verdict.BAD,
                recovery=Recovery.REPLACE,
                at=self.now,
                evidence="seen",
            )
            for fault in faults
        )
        self.assessment.take(
            Snapshot(probe="nvml", at=self.now, boot_id=BOOT.boot_id, observations=seen, covered=(component,))
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_while_the_operator_upgrades_the_driver_nothing_of_ours_looks_at_the_gpus(node: Node) -> None:
    node.operands.node_changed(RUNNING)
    assert node.states() == {}
    node.operands.node_changed(UPGRADING)
    assert node.states() == dict.fromkeys(("nvml", "nvidia_smi", "dcgm"), "Paused")
    assert {probe.message for probe in node.assessment.status().probes} == {
        f"{PREFIX}driver is paused-for-driver-upgrade"
    }
    node.operands.node_changed(RUNNING)
    assert all(source._resumed.is_set() and source._triggered.is_set() for source in node.watch.others)


@pytest.mark.parametrize("value", ["true", "false", "pre-installed", ""])
def test_a_part_that_never_runs_here_is_no_pause(node: Node, value: str) -> None:
    node.operands.node_changed({f"{PREFIX}driver": value, f"{PREFIX}dcgm": "true"})
    assert node.states() == {}


def test_a_pause_clears_nothing(node: Node) -> None:
    node.nvml("GpuRowRemapFailed")
    assert node.condition(ConditionType.GPU_MEMORY) is ConditionStatus.FALSE
    node.operands.node_changed(UPGRADING)
    for _ in range(10):
        node.wait(HOUR / 20)
    assert node.found() == ["GpuRowRemapFailed"]
    assert node.condition(ConditionType.GPU_MEMORY) is ConditionStatus.FALSE
    assert node.condition(ConditionType.THERMAL) is ConditionStatus.TRUE


def test_a_pause_beyond_its_deadline_is_told_until_it_ends(node: Node) -> None:
    node.nvml()
    node.operands.node_changed(UPGRADING)
    node.wait(HOUR - 1)
    assert node.found() == []
    node.wait(INTERVAL)
    (finding,) = node.assessment.findings
    assert (finding.fault, finding.verdict, finding.recovery) == ("OperandPaused", Verdict.UNKNOWN, Recovery.SUPPORT)
    assert "driver (paused-for-driver-upgrade)" in finding.evidence[0]
    assert node.condition(ConditionType.MONITORING) is ConditionStatus.UNKNOWN
    assert node.condition(ConditionType.THERMAL) is ConditionStatus.TRUE
    node.operands.node_changed(RUNNING)
    node.wait(1)
    node.wait(INTERVAL)
    assert node.found() == []


def test_a_pause_is_counted_from_its_beginning_though_the_agent_began_anew(node: Node) -> None:
    since = dt.datetime.fromtimestamp(node.now - HOUR + 60, dt.UTC)
    paused = ProbeStatus(name="nvml", state="Paused", since=since)
    before = NodeHealthStatus(
        boot_id="boot-1", machine=msgspec.structs.replace(NodeHealthStatus().machine, serial="s1")
    )
    node.assessment.adopt(msgspec.structs.replace(before, probes=(paused,)), (), 0.0)
    node.operands.node_changed(UPGRADING)
    node.wait(59)
    assert node.found() == []
    node.wait(INTERVAL)
    assert node.found() == ["OperandPaused"]


async def test_an_agent_that_begins_in_a_pause_does_not_look_dead(node: Node) -> None:
    node.operands.node_changed(UPGRADING)
    nvml = node.watch.main[0]
    running = nvml.run()
    coroutine = running.send(None)  # Up to its first wait.
    assert coroutine is not None
    running.close()
    assert nvml.first_look.is_set()
    assert nvml.last_resolved == node.now
