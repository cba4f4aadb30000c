"""An agent that begins anew on a bad node: nothing that is said of the node moves, before it looks and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.fake_api import FakeApi
from fleetwell.agent.loop import Agent
from fleetwell.agent.settings import Settings, Timing
from fleetwell.health.vocabulary import ConditionStatus, ConditionType
from fleetwell.kube.objects import Condition
from fleetwell.lab import machine
from fleetwell.lab.hardware import STATE_VARIABLE, Hardware
from fleetwell.probes import launch

LOST = b"3,7,5000000,-;NVRM: Xid (PCI:0000:86:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A machine on which every look finds all well: only the line of the kernel log says what had happened."""
    hardware = Hardware.create(machine.load("p5.48xlarge"), tmp_path / "host", "seed")
    monkeypatch.setenv(STATE_VARIABLE, str(hardware.state_file))
    launch.environment.cache_clear()
    timing = Timing(interval=60, deadline=20)
    return Settings(
        node_name="node-1",
        host_root=hardware.root,
        state_dir=tmp_path,
        nvml=timing,
        sysfs=timing,
        nvidia_smi=None,
        dcgm=None,
    )


async def begun(settings: Settings, api: FakeApi) -> Agent:
    agent = Agent(settings, api)  # type: ignore[arg-type]  # what is asked of a client here
    agent._adopt(api.node, api.health)
    return agent


async def look(agent: Agent) -> None:
    agent._kernel.tail.failure = ""
    agent._kernel.tail.caught_up.set()
    agent._kernel.report()
    for _ in range(3):
        for source in agent._watch.main:
            await source.look()
            source.first_look.set()


async def publish(agent: Agent) -> None:
    assert agent._publisher is not None
    await agent._publisher.publish()


def gpu(api: FakeApi) -> Condition:
    return api.conditions()[ConditionType.GPU.value]


async def test_a_restart_moves_no_condition_and_loses_no_finding(settings: Settings, api: FakeApi) -> None:
    first = await begun(settings, api)
    await look(first)
    first._kernel._records([LOST])
    await publish(first)
    before = gpu(api)
    assert (before.status, before.reason) == (ConditionStatus.FALSE.value, "GpuFallenOffBus")
    assert api.health is not None

    second = await begun(settings, api)
    api.writes.clear()
    await publish(second)
    assert api.writes == [], "it has not looked yet"
    assert second._assessment.findings == first._assessment.findings

    await look(second)
    await publish(second)
    assert gpu(api) == before, "that all is well now takes nothing back that had happened in this boot"
    assert api.writes == [], "all of it is on the server already"
    assert [one.fault for one in api.health.status.findings] == ["GpuFallenOffBus"]


async def test_what_another_boot_had_is_not_adopted(settings: Settings, api: FakeApi) -> None:
    first = await begun(settings, api)
    first._kernel._records([LOST])
    await publish(first)
    (settings.host_root / "proc/sys/kernel/random/boot_id").write_text("another-boot\n")
    second = await begun(settings, api)
    await look(second)
    assert second._assessment.findings == ()
