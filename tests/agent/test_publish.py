"""What reaches the API server, and when a condition's clock moves."""

from __future__ import annotations

import asyncio
import datetime as dt

import msgspec
import pytest

from agent.fake_api import FakeApi
from fleetwell.agent.publish import Publisher, published_conditions
from fleetwell.api.node_health import NodeFinding, NodeHealthStatus
from fleetwell.health.conditions import Condition
from fleetwell.health.vocabulary import Clears, ConditionStatus, ConditionType, Recovery, Source, Verdict
from fleetwell.kube import objects
from fleetwell.kube.backoff import Backoff
from fleetwell.kube.errors import Unreachable

GPU = ConditionType.GPU.value


def condition(status: ConditionStatus = ConditionStatus.TRUE, message: str = "every check passed") -> Condition:
    reason = "Healthy" if status is ConditionStatus.TRUE else "GpuLost"
    return Condition(type=ConditionType.GPU, status=status, reason=reason, message=message)


class Bench:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.wanted: tuple[Condition, ...] = (condition(),)
        self.status = NodeHealthStatus(node_uid="uid-1", boot_id="boot-1")
        self.wall = 1_000_000.0
        self.monotonic = 0.0

    def publisher(self) -> Publisher:
        return Publisher(
            self.api,
            self.api.node,
            lambda: self.wanted,
            lambda: self.status,
            wall=lambda: self.wall,
            monotonic=lambda: self.monotonic,
            backoff=Backoff(0.001, 0.002),
        )

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.api.writes]

    def since(self) -> str | None:
        return self.api.conditions()[GPU].last_transition_time


@pytest.fixture
def bench() -> Bench:
    return Bench()


def finding(count: int = 1, fault: str = "GpuLost") -> NodeFinding:
    return NodeFinding(
        fault=fault,
        component="gpu/GPU-1",
        verdict=Verdict.BAD,
        recovery=Recovery.REBOOT,
        source=Source.EVENT,
        probe="kernel_log",
        clears=Clears.BOOT,
        first_seen=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        last_seen=dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=count),
        count=count,
    )


async def test_conditions_and_health_are_written_once_and_not_again(bench: Bench) -> None:
    publisher = bench.publisher()
    await publisher.publish()
    await publisher.publish()
    assert bench.kinds() == ["conditions", "create health", "health"]
    assert bench.api.health is not None
    assert bench.api.health.metadata.owner_references[0].uid == "uid-1"


async def test_the_clock_of_a_condition_moves_with_its_status_only(bench: Bench) -> None:
    publisher = bench.publisher()
    await publisher.publish()
    first = bench.since()
    bench.wall += 100
    bench.wanted = (condition(message="another text"),)
    await publisher.publish()
    assert bench.api.conditions()[GPU].message == "another text"
    assert bench.since() == first
    bench.wanted = (condition(ConditionStatus.FALSE),)
    await publisher.publish()
    assert bench.since() != first


async def test_a_restarted_agent_writes_nothing_when_nothing_changed(bench: Bench) -> None:
    await bench.publisher().publish()
    bench.api.writes.clear()
    bench.wall += 100
    again = bench.publisher()
    assert bench.api.health is not None
    again.adopt(bench.api.health.status)
    await again.publish()
    assert bench.api.writes == []


async def test_a_restarted_agent_that_still_finds_it_bad_keeps_the_clock(bench: Bench) -> None:
    bench.wanted = (condition(ConditionStatus.FALSE),)
    await bench.publisher().publish()
    first = bench.since()
    bench.wall += 100
    bench.wanted = (condition(ConditionStatus.FALSE, "in other words"),)
    await bench.publisher().publish()
    assert bench.since() == first


async def test_conditions_of_others_are_never_in_the_patch(bench: Bench) -> None:
    ready = objects.Condition(type="Ready", status="True", reason="KubeletReady")
    bench.api.node = msgspec.structs.replace(bench.api.node, status=objects.NodeStatus(conditions=[ready]))
    await bench.publisher().publish()
    assert [change["type"] for change in bench.api.writes[0][1]] == [GPU]
    assert bench.api.conditions()["Ready"] == ready


async def test_what_the_controller_set_in_our_silence_is_taken_back_and_not_adopted(bench: Bench) -> None:
    publisher = bench.publisher()
    await publisher.publish()
    silent = msgspec.structs.replace(bench.api.conditions()[GPU], status="Unknown", reason="AgentSilent")
    node = msgspec.structs.replace(bench.api.node, status=objects.NodeStatus(conditions=[silent]))
    assert published_conditions(node) == ()
    bench.api.node = node
    bench.wall += 100
    publisher.node_changed(node)
    await publisher.publish()
    assert bench.api.conditions()[GPU].status == "True"


async def test_a_finding_that_only_counts_on_is_written_once_a_minute(bench: Bench) -> None:
    publisher = bench.publisher()
    bench.status = msgspec.structs.replace(bench.status, findings=(finding(1),))
    await publisher.publish()
    bench.api.writes.clear()
    for count in range(2, 100):
        bench.status = msgspec.structs.replace(bench.status, findings=(finding(count),))
        await publisher.publish()
    assert bench.api.writes == []
    bench.monotonic += 61
    await publisher.publish()
    assert bench.kinds() == ["health"]


async def test_a_new_finding_is_written_at_once(bench: Bench) -> None:
    publisher = bench.publisher()
    await publisher.publish()
    bench.api.writes.clear()
    bench.status = msgspec.structs.replace(bench.status, findings=(finding(),))
    await publisher.publish()
    assert bench.kinds() == ["health"]


async def test_nothing_is_lost_while_the_api_server_is_away(bench: Bench) -> None:
    bench.api.away = True
    publisher = bench.publisher()
    with pytest.raises(Unreachable):
        await publisher.publish()
    bench.wanted = (condition(ConditionStatus.FALSE),)
    task = asyncio.create_task(publisher.run())
    publisher.wake()
    await asyncio.sleep(0.05)  # Several tries, all of them refused.
    bench.api.away = False
    async with asyncio.timeout(5):
        while bench.api.health is None or not bench.api.conditions():
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bench.api.conditions()[GPU].status == "False"


async def test_a_node_health_that_somebody_deleted_is_made_again(bench: Bench) -> None:
    publisher = bench.publisher()
    await publisher.publish()
    bench.api.health = None
    publisher.health_gone()
    await publisher.publish()
    assert bench.api.health is not None
