"""What the policy says that the node must have, from the agent's own NodeHealth to what the next look finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.fake_api import FakeApi
from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import Boot
from fleetwell.agent.loop import Agent
from fleetwell.agent.settings import Settings, Timing
from fleetwell.api.node_health import NodeHealthSpec
from fleetwell.api.policy import Expected as PolicyExpected
from fleetwell.api.resources import NodeHealth
from fleetwell.health.vocabulary import BootId, ConditionStatus, ConditionType, Finding
from fleetwell.kube.informer import Change, ChangeKind
from fleetwell.kube.objects import Node, NodeStatus, ObjectMeta
from fleetwell.lab import machine
from fleetwell.lab.hardware import STATE_VARIABLE, Hardware
from fleetwell.probes import launch
from fleetwell.probes.inventory import Expected, MachineMemory

NOTHING = Expected()


def assessment(said: Expected = NOTHING, instance_type: str = "unheard.of", most_gpus: int = 0) -> Assessment:
    boot = Boot(boot_id=BootId("b"), booted_at=1.0, serial="s", instance_type=instance_type, driver_branch=570)
    return Assessment(boot, MachineMemory(serial="s", most_gpus=most_gpus), said)


def health(**expected: int) -> NodeHealth:
    return NodeHealth(metadata=ObjectMeta(name="node-1"), spec=NodeHealthSpec(expected=PolicyExpected(**expected)))


# Which word counts


def test_the_policy_comes_before_the_flag_and_the_flag_before_the_table() -> None:
    node = assessment(Expected(gpus=6), "p5.48xlarge", most_gpus=8)
    assert node.expected.gpus == 6
    node.policy_says(Expected(gpus=7))
    assert node.expected.gpus == 7
    node.policy_says(NOTHING)
    assert node.expected.gpus == 6
    assert assessment(instance_type="p5.48xlarge").expected.gpus == 8


def test_the_policy_comes_before_what_was_requested_at_launch() -> None:
    node = assessment()
    node.requested = Expected(nics=4, infiniband=2)
    node.policy_says(Expected(nics=32))
    assert (node.expected.nics, node.expected.infiniband) == (32, 2)


def test_a_count_that_the_policy_does_not_name_is_left_to_the_flag_and_so_are_rates() -> None:
    node = assessment(Expected(gpus=6, nics=16, efa_gbps=100))
    node.policy_says(Expected(gpus=8))
    must = node.expected
    assert (must.gpus, must.nics, must.efa_gbps) == (8, 16, 100)


def test_a_policy_may_say_that_there_are_none() -> None:
    node = assessment(instance_type="p5.48xlarge")
    node.policy_says(Expected(gpus=0))
    assert node.expected.gpus == 0
    assert not node.is_owed("nvml")


def test_what_the_policy_says_makes_a_probe_required_and_is_published_at_once() -> None:
    node, published = assessment(), list[int]()
    node._on_change = lambda: published.append(node.status().expected.gpus)
    node.policy_says(Expected(gpus=8))
    assert node.is_owed("nvml")
    assert published[-1] == 8
    times = len(published)
    node.policy_says(Expected(gpus=8))
    assert len(published) == times


def test_the_table_bounds_interfaces_and_never_asks_for_any() -> None:
    node = assessment(instance_type="p6-b200.48xlarge")
    assert node.expected.nics is None
    node.requested = Expected(nics=4)
    assert node.expected.nics == 4
    node.requested = Expected(nics=32)  # A launch template for another type.
    assert node.expected.nics == 8
    assert assessment(Expected(nics=10), "p6-b200.48xlarge").expected.nics == 10  # A person's word is left as it is.


# The agent's own NodeHealth


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hardware:
    """A machine of 8 GPUs whose firmware does not tell its type, and one of which is not there from the beginning."""
    made = Hardware.create(machine.load("p5.48xlarge"), tmp_path / "host", "seed")
    monkeypatch.setenv(STATE_VARIABLE, str(made.state_file))
    with made.update() as state:
        state.gpus[7].lasting.absent = True
    launch.environment.cache_clear()
    return made


@pytest.fixture
def agent(tmp_path: Path, hardware: Hardware) -> Agent:
    timing = Timing(interval=60, deadline=20)
    settings = Settings(
        node_name="node-1",
        host_root=hardware.root,
        state_dir=tmp_path,
        nvml=timing,
        sysfs=timing,
        nvidia_smi=None,
        dcgm=None,
    )
    made = Agent(settings, FakeApi())  # type: ignore[arg-type]  # what is asked of a client here
    made._assessment.instance_type = "unheard.of"
    return made


async def looks(agent: Agent) -> set[str]:
    """Let the children of NVML and sysfs look as often as their debounce takes."""
    for _ in range(2):
        for source in agent._watch.main:
            await source.look()
    return {finding.fault for finding in agent._assessment.findings}


def gpu_condition(agent: Agent) -> ConditionStatus:
    return next(one.status for one in agent._assessment.conditions() if one.type is ConditionType.GPU)


async def test_a_gpu_that_the_policy_asks_for_and_nvml_does_not_show_is_missing_until_it_asks_no_more(
    agent: Agent,
) -> None:
    assert await looks(agent) == set()
    agent._health_changed(Change(ChangeKind.ADDED, health(gpus=8)))
    assert await looks(agent) == {"GpuMissing"}
    assert gpu_condition(agent) is ConditionStatus.FALSE
    assert agent._assessment.status().expected.gpus == 8
    agent._health_changed(Change(ChangeKind.MODIFIED, health()))
    assert await looks(agent) == set()
    assert gpu_condition(agent) is ConditionStatus.TRUE


async def test_an_agent_that_begins_anew_knows_the_policys_word_before_its_first_look(agent: Agent) -> None:
    agent._adopt(Node(metadata=ObjectMeta(name="node-1", uid="uid-1")), health(gpus=8, efa=32, infiniband=2))
    must = agent._assessment.expected
    assert (must.gpus, must.nics, must.infiniband) == (8, 32, 2)


async def test_a_node_health_that_is_deleted_takes_back_nothing_that_the_policy_said(agent: Agent) -> None:
    agent._health_changed(Change(ChangeKind.ADDED, health(gpus=8)))
    agent._health_changed(Change(ChangeKind.DELETED, health(gpus=8)))
    assert agent._assessment.expected.gpus == 8


# What the driver stack writes


async def test_labels_and_counts_that_the_driver_stack_writes_make_no_gpu_unneeded(agent: Agent) -> None:
    """They shrink with the fault: the device plugin offers seven, and so does feature discovery's label."""
    agent._assessment.instance_type = "p5.48xlarge"
    labels = {"nvidia.com/gpu.count": "7", "feature.node.kubernetes.io/pci-10de.count": "7"}
    status = NodeStatus(allocatable={"nvidia.com/gpu": "7"}, capacity={"nvidia.com/gpu": "7"})
    agent._take_from(Node(metadata=ObjectMeta(name="node-1", labels=labels), status=status))
    assert agent._assessment.expected.gpus == 8
    assert "GpuMissing" in await looks(agent)
    assert gpu_condition(agent) is ConditionStatus.FALSE


def findings(agent: Agent) -> list[Finding]:
    return list(agent._assessment.findings)


async def test_a_node_that_offers_less_than_its_hardware_has_is_told_and_stays_healthy(agent: Agent) -> None:
    await looks(agent)
    offered = {"nvidia.com/gpu": "0", "vpc.amazonaws.com/efa": "31"}
    agent._take_from(Node(metadata=ObjectMeta(name="node-1"), status=NodeStatus(allocatable=offered)))
    for minute in range(2):
        agent._allocatable.look(60.0 * minute)
    assert findings(agent) == []  # A plugin that starts anew offers nothing for a while.
    agent._allocatable.look(120.0)
    (finding,) = findings(agent)
    assert (finding.fault, finding.component) == ("AllocatableBelowHardware", "host")
    assert (finding.verdict, finding.recovery) == ("CONFIG", "none")
    assert "0 of nvidia.com/gpu and the hardware has 7" in finding.evidence[0]
    assert "31 of vpc.amazonaws.com/efa and the hardware has 32" in finding.evidence[0]
    assert {one.status for one in agent._assessment.conditions() if one.reason != "NotYetChecked"} == {
        ConditionStatus.TRUE
    }
    agent._take_from(
        Node(
            metadata=ObjectMeta(name="node-1"),
            status=NodeStatus(allocatable={"nvidia.com/gpu": "7", "vpc.amazonaws.com/efa": "32"}),
        )
    )
    for minute in range(3, 6):
        agent._allocatable.look(60.0 * minute)
    assert findings(agent) == []
