"""Operations happen at most once, wherever the agent or the API server stops in between."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.fake_api import FakeApi
from fleetwell.agent.doorbell import Doorbell
from fleetwell.agent.operations import Identity, Operations
from fleetwell.agent.record import Began, OperationRecord
from fleetwell.api.node_operation import (
    NodeOperationSpec,
    NodeOperationStatus,
    OperationKind,
    OperationPhase,
)
from fleetwell.api.resources import NodeOperation
from fleetwell.kube.errors import Unreachable
from fleetwell.kube.objects import ObjectMeta

NOW = dt.datetime(2026, 11, 30, 12, 0, tzinfo=dt.UTC)
DONE = NodeOperationStatus(phase=OperationPhase.SUCCEEDED, message="done")


class Crash(BaseException):
    """The agent's process ends here."""


class FakeDeeds:
    def __init__(self) -> None:
        self.done: list[OperationKind] = []
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    async def do(self, spec: NodeOperationSpec, within: float) -> NodeOperationStatus:
        assert within > 0
        self.before()
        self.done.append(spec.kind)
        self.after()
        return DONE


class Bench:
    """One node with its API server and its disk; the agent on it can be started anew."""

    def __init__(self, tmp_path: Path) -> None:
        self.api = FakeApi()
        self.deeds = FakeDeeds()
        self.path = tmp_path / "operations.jsonl"
        self.now = NOW
        self.boot_id = "boot-1"
        self.ended: list[NodeOperation] = []

    def ask(self, kind: OperationKind = OperationKind.RESET_GPU, **changes: object) -> None:
        spec = NodeOperationSpec(
            kind=kind,
            node_name="node-1",
            node_uid="uid-1",
            incident="incident-1",
            operation_id="op-1",
            expected_boot_id="boot-1",
            deadline=NOW + dt.timedelta(minutes=10),
            component="gpu/GPU-1",
        )
        spec = msgspec.structs.replace(spec, **changes)
        self.api.put(NodeOperation(metadata=ObjectMeta(name="op"), spec=spec))

    def agent(self, record: OperationRecord | None = None) -> Operations:
        return Operations(
            self.api,
            record or OperationRecord(self.path),
            Identity(node_name="node-1", node_uid="uid-1", boot_id=self.boot_id),
            self.deeds,
            wall=lambda: self.now,
            sleep=self.sleep,
            ended=self.ended.append,
        )

    async def sleep(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)

    @property
    def status(self) -> NodeOperationStatus:
        return self.api.operations["op"].status


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def crash() -> None:
    raise Crash


class CrashingRecord(OperationRecord):
    """Ends the process around its own writes."""

    before_begin = after_begin = before_end = after_end = staticmethod(lambda: None)

    def begin(self, began: Began) -> None:
        self.before_begin()
        super().begin(began)
        self.after_begin()

    def end(self, operation_id: str, status: NodeOperationStatus) -> None:
        self.before_end()
        super().end(operation_id, status)
        self.after_end()


async def test_an_operation_runs_and_its_result_is_reported(bench: Bench) -> None:
    bench.ask()
    await bench.agent().handle("op")
    assert bench.deeds.done == [OperationKind.RESET_GPU]
    assert bench.status.phase is OperationPhase.SUCCEEDED
    assert bench.status.started_at is not None
    assert bench.status.finished_at is not None
    assert [one.metadata.name for one in bench.ended] == ["op"]


async def test_ringing_again_does_nothing(bench: Bench) -> None:
    bench.ask()
    agent = bench.agent()
    await agent.handle("op")
    await agent.handle("op")
    assert len(bench.ended) == 1
    await bench.agent().handle("op")
    assert len(bench.deeds.done) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expected_boot_id": "boot-0"}, "this is boot boot-1"),
        ({"deadline": NOW}, "deadline"),
    ],
)
async def test_what_is_not_for_this_boot_and_now_is_refused(
    bench: Bench, changes: dict[str, object], words: str
) -> None:
    bench.ask(OperationKind.RESET_GPU, **changes)
    await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert bench.status.phase is OperationPhase.REFUSED
    assert words in bench.status.message


async def test_a_cancelled_operation_is_not_begun(bench: Bench) -> None:
    bench.ask(cancel=True)
    await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert bench.status.phase is OperationPhase.CANCELLED


async def test_a_cancel_that_comes_between_read_and_claim_wins(bench: Bench) -> None:
    bench.ask()

    def cancel() -> None:
        bench.api.before_write = lambda: None
        operation = bench.api.operations["op"]
        bench.api.put(msgspec.structs.replace(operation, spec=msgspec.structs.replace(operation.spec, cancel=True)))

    bench.api.before_write = cancel
    await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert bench.status.phase is OperationPhase.CANCELLED


async def test_an_operation_that_somebody_ended_between_read_and_claim_is_not_begun(bench: Bench) -> None:
    bench.ask()
    ended = NodeOperationStatus(phase=OperationPhase.FAILED, message="given up")

    def end() -> None:
        bench.api.before_write = lambda: None
        bench.api.put(msgspec.structs.replace(bench.api.operations["op"], status=ended))

    bench.api.before_write = end
    await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert bench.status == ended
    assert [one.status for one in bench.ended] == [ended]


async def test_a_deed_that_broke_off_is_not_done_again_by_the_same_agent_either(bench: Bench) -> None:
    bench.ask()
    bench.deeds.after = crash
    agent = bench.agent()
    with pytest.raises(Crash):
        await agent.handle("op")
    bench.deeds.after = lambda: None
    await agent.handle("op")
    assert len(bench.deeds.done) == 1
    assert bench.status.phase is OperationPhase.UNCERTAIN


@pytest.mark.parametrize("kind", [OperationKind.RESET_GPU, OperationKind.REBOOT])
async def test_what_this_disk_knows_as_begun_is_not_begun_again_whatever_the_api_server_has_forgotten(
    bench: Bench, kind: OperationKind
) -> None:
    bench.ask(kind)
    bench.deeds.after = crash
    with pytest.raises(Crash):
        await bench.agent().handle("op")
    bench.deeds.after = lambda: None
    bench.ask(kind)  # as after a restore of etcd from before
    assert bench.status.phase is OperationPhase.PENDING
    await bench.agent().handle("op")
    assert bench.deeds.done == [kind]
    assert bench.status.phase in {OperationPhase.UNCERTAIN, OperationPhase.FAILED}


async def test_an_operation_that_is_deleted_while_it_runs_ends_here_too(bench: Bench) -> None:
    bench.ask()
    bench.deeds.after = bench.api.operations.clear
    agent = bench.agent()
    async with asyncio.timeout(5):
        await agent.handle("op")
    entry = OperationRecord(bench.path).get("op-1")
    assert entry is not None
    assert entry.result is not None
    assert entry.result.phase is OperationPhase.SUCCEEDED
    assert agent.running is None


async def test_what_runs_is_told_while_it_runs_and_not_after(bench: Bench) -> None:
    bench.ask()
    agent = bench.agent()
    told: list[tuple[OperationKind | None, OperationPhase, dt.datetime | None]] = []
    bench.deeds.before = lambda: told.append((agent.running, bench.status.phase, bench.status.finished_at))
    await agent.handle("op")
    assert told == [(OperationKind.RESET_GPU, OperationPhase.RUNNING, None)]
    assert agent.running is None


async def test_a_result_tells_its_times_and_its_boot_also_when_nothing_was_done(bench: Bench) -> None:
    bench.ask()
    bench.deeds.before = lambda: setattr(bench, "now", NOW + dt.timedelta(minutes=1))
    await bench.agent().handle("op")
    assert (bench.status.started_at, bench.status.finished_at) == (NOW, NOW + dt.timedelta(minutes=1))
    assert bench.status.boot_id == "boot-1"
    bench.ask(operation_id="op-2", cancel=True)
    await bench.agent().handle("op")
    assert (bench.status.started_at, bench.status.finished_at) == (None, bench.now)
    assert bench.status.boot_id == "boot-1"


async def test_when_it_was_begun_is_kept_where_its_end_is_uncertain(bench: Bench) -> None:
    bench.ask()
    bench.deeds.after = crash
    with pytest.raises(Crash):
        await bench.agent().handle("op")
    bench.now += dt.timedelta(minutes=1)
    await bench.agent().handle("op")
    assert bench.status.phase is OperationPhase.UNCERTAIN
    assert (bench.status.started_at, bench.status.finished_at) == (NOW, bench.now)


async def test_a_reboot_that_may_still_come_is_waited_for_until_the_deadline(bench: Bench) -> None:
    bench.ask(OperationKind.REBOOT)
    bench.deeds.after = crash
    with pytest.raises(Crash):
        await bench.agent().handle("op")
    bench.now += dt.timedelta(minutes=4)
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    agent = bench.agent()
    agent._sleep = sleep
    await agent.handle("op")
    assert waits == [360.0]
    assert bench.status.phase is OperationPhase.FAILED


async def test_another_agent_that_claimed_it_first_is_left_alone(bench: Bench) -> None:
    bench.ask()

    def claim() -> None:
        bench.api.before_write = lambda: None
        running = NodeOperationStatus(phase=OperationPhase.RUNNING, started_at=NOW - dt.timedelta(seconds=1))
        bench.api.put(msgspec.structs.replace(bench.api.operations["op"], status=running))

    bench.api.before_write = claim
    await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert bench.status.phase is OperationPhase.UNCERTAIN


@pytest.mark.parametrize("kind", list(OperationKind))
@pytest.mark.parametrize(
    "point", ["before_begin", "after_begin", "before_act", "after_act", "before_end", "after_end", "before_report"]
)
async def test_an_agent_that_ends_anywhere_and_comes_back_never_acts_twice(
    bench: Bench, point: str, kind: OperationKind
) -> None:
    bench.ask(kind)
    record = CrashingRecord(bench.path)
    match point:
        case "before_act":
            bench.deeds.before = crash
        case "after_act":
            bench.deeds.after = crash
        case "before_report":
            bench.deeds.after = lambda: setattr(bench.api, "before_write", crash)
        case _:
            setattr(record, point, crash)
    with pytest.raises(Crash):
        await bench.agent(record).handle("op")
    bench.deeds.before = bench.deeds.after = bench.api.before_write = lambda: None
    acted = len(bench.deeds.done)

    await bench.agent().handle("op")

    assert bench.status.phase.ended
    if kind in {OperationKind.RESET_GPU, OperationKind.REBOOT}:
        assert len(bench.deeds.done) == acted
        if point in {"after_end", "before_report"}:
            assert bench.status.phase is OperationPhase.SUCCEEDED
        elif kind is OperationKind.REBOOT and point != "before_begin":
            assert bench.status.phase is OperationPhase.FAILED  # The same boot at the deadline: it did not happen.
        else:
            assert bench.status.phase is OperationPhase.UNCERTAIN
    else:
        assert bench.status.phase is OperationPhase.SUCCEEDED


async def test_a_reboot_that_happened_is_reported_by_the_next_boot(bench: Bench) -> None:
    bench.ask(OperationKind.REBOOT)
    bench.deeds.after = crash
    with pytest.raises(Crash):
        await bench.agent().handle("op")
    bench.boot_id = "boot-2"
    await bench.agent().handle("op")
    assert bench.deeds.done == [OperationKind.REBOOT]
    assert bench.status.phase is OperationPhase.SUCCEEDED
    assert "boot-2" in bench.status.message


async def test_a_proof_that_a_reboot_interrupted_is_not_repeated_on_the_other_boot(bench: Bench) -> None:
    bench.ask(OperationKind.PROVE)
    bench.deeds.before = crash
    with pytest.raises(Crash):
        await bench.agent().handle("op")
    bench.boot_id = "boot-2"
    await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert bench.status.phase is OperationPhase.UNCERTAIN


async def test_a_lost_disk_makes_a_begun_operation_uncertain(bench: Bench) -> None:
    bench.ask()
    bench.deeds.after = crash
    with pytest.raises(Crash):
        await bench.agent().handle("op")
    bench.path.unlink()
    await bench.agent().handle("op")
    assert len(bench.deeds.done) == 1
    assert bench.status.phase is OperationPhase.UNCERTAIN


async def test_a_disk_that_cannot_be_written_refuses(bench: Bench) -> None:
    bench.ask()
    bench.path = bench.path.parent / "no" / "such" / "folder" / "record"
    await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert bench.status.phase is OperationPhase.REFUSED


async def test_without_an_api_server_nothing_is_begun(bench: Bench) -> None:
    bench.ask()
    bench.api.away = True
    with pytest.raises(Unreachable):
        await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert not bench.path.exists()


async def test_a_claim_whose_answer_is_lost_is_known_again_as_our_own(bench: Bench) -> None:
    bench.ask()
    bench.api.lose_answers = 1
    agent = bench.agent()
    with pytest.raises(Unreachable):
        await agent.handle("op")
    assert bench.deeds.done == []
    await agent.handle("op")
    assert len(bench.deeds.done) == 1
    assert bench.status.phase is OperationPhase.SUCCEEDED


async def test_a_result_is_written_when_the_api_server_is_back(bench: Bench) -> None:
    bench.ask()
    bench.deeds.after = lambda: setattr(bench.api, "away", True)
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        bench.api.away = len(waits) < 3

    agent = bench.agent()
    agent._sleep = sleep
    await agent.handle("op")
    assert len(waits) == 3
    assert bench.status.phase is OperationPhase.SUCCEEDED


async def test_a_deed_that_does_not_end_fails_at_its_deadline(bench: Bench) -> None:
    bench.ask(deadline=NOW + dt.timedelta(milliseconds=50))

    class Endless(FakeDeeds):
        async def do(self, spec: NodeOperationSpec, within: float) -> NodeOperationStatus:
            await asyncio.Event().wait()
            raise AssertionError

    bench.deeds = Endless()
    await bench.agent().handle("op")
    assert bench.status.phase is OperationPhase.FAILED
    assert "deadline" in bench.status.message


async def test_the_doorbell_keeps_the_newest_name_only() -> None:
    doorbell = Doorbell()
    doorbell.ring("")
    doorbell.ring("one")
    doorbell.ring("two")
    assert await doorbell.answered() == "two"


@pytest.mark.parametrize(
    "other", [{"node_uid": "uid-0"}, {"node_name": "node-2"}, {"node_uid": "uid-0", "cancel": True}]
)
async def test_the_bell_of_an_earlier_node_of_this_name_is_not_answered(bench: Bench, other: dict[str, Any]) -> None:
    """The API server takes no report on another node's operation: one that is tried for ever would block all others."""
    bench.ask(OperationKind.REBOOT, **other)
    await bench.agent().handle("op")
    assert bench.deeds.done == []
    assert bench.status.phase is OperationPhase.PENDING
    assert not bench.ended
