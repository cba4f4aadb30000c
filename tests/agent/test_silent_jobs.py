"""Jobs that tell the agent nothing: what they leave is heard once, and makes the probes look."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.hearing import XID, Hearing
from agent.node_tree import NodeTree
from fleetwell.agent import silent_jobs
from fleetwell.agent.silent_jobs import ENDS_EVERY, MESSAGES_EVERY, SilentJobs
from fleetwell.agent.termination_messages import Scanner

OTHER = "11111111-2222-3333-4444-555555555555"
BY_MESSAGE = ("terminationMessage", "workerDied", "taken")
BY_CODE = ("exitCode", "workerDied", "taken")


class Ground(Hearing):
    """A node with GPUs, and its agent."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.tree = NodeTree(root)
        self.tree.give_gpus()

    async def scan(self, later: float = MESSAGES_EVERY) -> int:
        """Scan once, and give the looks that came of it."""
        looks = await self.scan_once()
        self.now += later
        return looks


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.silent.close()


async def test_a_pod_that_only_ends_with_a_code_is_heard_by_it(ground: Ground) -> None:
    ground.tree.start()
    assert await ground.scan() == 0
    ground.message().touch()  # as the kubelet does when the container begins
    ground.tree.end(134)
    assert await ground.scan() == 1
    assert await ground.scan() == 0
    assert ground.reports.counts == {BY_CODE: 1}


@pytest.mark.parametrize("code", [0, 1, 137, 143])
async def test_an_end_that_hints_at_nothing_is_none(ground: Ground, code: int) -> None:
    ground.tree.start()
    await ground.scan()
    ground.tree.end(code)
    assert await ground.scan() == 0
    assert ground.reports.counts == {}


@pytest.mark.parametrize("message_first", [True, False])
async def test_a_container_that_leaves_a_message_and_ends_with_a_code_is_heard_once_by_its_message(
    ground: Ground, message_first: bool
) -> None:
    ground.tree.start(ago=2.0)
    await ground.scan()
    ground.message().write_bytes(XID)
    if message_first:
        assert await ground.scan() == 1
    ground.tree.end(134, ran=2.0)
    # A scan for messages is not due: the end is reason enough for one.
    assert await ground.scan(later=0.0) == (0 if message_first else 1)
    assert await ground.scan() == 0
    assert ground.reports.counts == {BY_MESSAGE: 1}


async def test_a_message_that_is_found_after_its_end_was_reported_is_not_counted_again(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.tree.start(ago=2.0)
    await ground.scan()
    ground.message().write_bytes(XID)
    ground.tree.end(134, ago=-0.1, ran=2.0)
    with monkeypatch.context() as patch:
        patch.setattr(Scanner, "scan", lambda _self: [])
        assert await ground.scan() == 1
    assert await ground.scan() == 0
    assert ground.reports.counts == {BY_CODE: 1}


async def test_a_message_that_explains_the_end_leaves_nothing_to_its_code(ground: Ground) -> None:
    ground.tree.start(ago=2.0)
    await ground.scan()
    ground.message().write_bytes(b"torch.OutOfMemoryError: CUDA out of memory")
    ground.tree.end(134, ran=2.0)
    assert await ground.scan() == 0
    assert ground.reports.counts == {}


async def test_a_message_that_explains_nothing_leaves_it_to_the_code(ground: Ground) -> None:
    ground.tree.start(ago=2.0)
    await ground.scan()
    ground.message().write_bytes(b"epoch 3 begins")
    ground.tree.end(134, ran=2.0)
    assert await ground.scan() == 1
    assert ground.reports.counts == {BY_CODE: 1}


async def test_the_message_of_an_earlier_run_explains_no_later_one(ground: Ground) -> None:
    ground.tree.start(ago=2.0)
    await ground.scan()
    ground.message().write_bytes(XID)
    ground.tree.end(134, ran=2.0)
    assert await ground.scan() == 1
    ground.tree.start("again")
    ground.tree.end(134, "again", ago=-60.0, ran=10.0)
    assert await ground.scan() == 1
    assert ground.reports.counts == {BY_MESSAGE: 1, BY_CODE: 1}


async def test_a_message_of_one_container_says_nothing_of_another(ground: Ground) -> None:
    ground.tree.start(ago=2.0)
    await ground.scan()
    ground.message(container="sidecar").write_bytes(XID)
    ground.tree.end(134, ran=2.0)
    assert await ground.scan() == 2
    assert ground.reports.counts == {BY_MESSAGE: 1, BY_CODE: 1}


async def test_codes_and_messages_of_a_pod_share_its_allowance(ground: Ground) -> None:
    await ground.scan()
    looks = []
    for number in range(4):
        ground.message(container=f"c{number}").write_bytes(XID)
        looks.append(await ground.scan(later=0.0))
        ground.now += 0.1
        ground.tree.start(f"n{number}")
        ground.tree.end(139, f"n{number}")
        looks.append(await ground.scan(later=0.0))
    assert sum(looks) == 5
    ground.now += 10
    ground.tree.give_gpus(OTHER)
    ground.tree.start("other", OTHER)
    ground.tree.end(139, "other")
    assert await ground.scan() == 1
    assert sum(number for (_, _, result), number in ground.reports.counts.items() if result == "taken") == 6
    refused = {way: number for (way, _, result), number in ground.reports.counts.items() if result != "taken"}
    assert sum(refused.values()) == 3
    assert "exitCode" in refused


async def test_messages_are_looked_for_less_often_than_ends(ground: Ground) -> None:
    assert await ground.scan(later=1.0) == 0
    ground.message().write_bytes(XID)
    assert await ground.scan(later=1.0) == 0
    ground.now += MESSAGES_EVERY
    assert await ground.scan() == 1


async def test_while_the_probes_look_others_are_heard(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    released = asyncio.Event()

    async def slow() -> bool:
        ground.looks += 1
        await released.wait()
        return True

    await ground.scan()
    monkeypatch.setattr(ground.reports, "_look", slow)
    monkeypatch.setattr(silent_jobs, "ENDS_EVERY", 0.01)
    monkeypatch.setattr(silent_jobs, "MESSAGES_EVERY", 0.01)
    running = asyncio.create_task(ground.silent.run())
    async with asyncio.timeout(20):
        for name in ("first", "second"):
            before = ground.looks
            ground.tree.start(name)
            ground.tree.end(139, name, ago=-3600.0)
            while ground.looks == before:
                await asyncio.sleep(0.01)
    released.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert ground.looks == 2


async def test_a_runtime_with_a_root_of_its_own_is_heard(ground: Ground) -> None:
    silent = SilentJobs(
        ground.tree.root, ground.reports.heard, ground.reports.not_heard, runtime_root=Path("/data/containerd")
    )
    for code in (0, 134):
        async with asyncio.TaskGroup() as looks:
            await silent.look(looks)
        ground.tree.start(f"ends with {code}")
        ground.tree.end(code, f"ends with {code}")
        (ground.tree.root / "data").mkdir(exist_ok=True)
        (ground.tree.root / "var/lib/containerd").replace(
            ground.tree.root / f"data/{'containerd' if code else 'other'}"
        )
    async with asyncio.TaskGroup() as looks:
        await silent.look(looks)
    silent.close()
    assert ground.reports.counts == {BY_CODE: 1}


async def test_a_runtime_that_is_not_known_is_said_once(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    ground.tree.link()
    await ground.scan()
    await ground.scan()
    said = capsys.readouterr()
    assert (said.out + said.err).count("exit codes are not heard") == 1


async def test_what_goes_wrong_in_a_scan_is_not_lost(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Scanner, "scan", broken)
    with pytest.raises(ExceptionGroup) as raised:
        await ground.scan()
    assert raised.group_contains(MemoryError)


async def test_a_scan_that_hangs_hangs_nobody_else(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, release = threading.Event(), threading.Event()

    def hung(_self: Any) -> list[Any]:
        begun.set()
        release.wait(30)
        return []

    monkeypatch.setattr(Scanner, "scan", hung)
    task = asyncio.create_task(ground.silent.run())
    async with asyncio.timeout(10):
        while not begun.is_set():
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    release.set()


async def test_without_a_thread_there_is_no_scan_and_the_agent_goes_on(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_self: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        assert await ground.scan() == 0
    await ground.scan()
    ground.message().write_bytes(XID)
    assert await ground.scan() == 1


async def test_it_looks_often_while_a_container_with_gpus_runs_and_its_thread_ends_with_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            ground.tree.start()
        if len(pauses) == 4:
            ground.tree.end(143)
        if len(pauses) == 6:
            enough.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    running = asyncio.create_task(ground.silent.run())
    async with asyncio.timeout(10):
        await enough.wait()
    (thread,) = [one for one in threading.enumerate() if one.name == "silent jobs"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert pauses == [MESSAGES_EVERY] * 2 + [ENDS_EVERY] * 2 + [MESSAGES_EVERY] * 2
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
