from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetwell.lab import freeze
from fleetwell.lab.containers import ContainerProcess


async def start(tmp_path: Path, script: str) -> ContainerProcess:
    env = {"PATH": os.environ["PATH"], "MESSAGE": str(tmp_path / "message")}
    return await ContainerProcess.start(
        ["/bin/sh", "-c", script], env, tmp_path, tmp_path / "log", tmp_path / "message"
    )


async def until(path: Path) -> str:
    async with asyncio.timeout(10):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.02)
    return path.read_text()


async def test_exit_code_output_and_termination_message_are_kept(tmp_path: Path) -> None:
    container = await start(tmp_path, 'echo out; echo err >&2; echo why > "$MESSAGE"; exit 3')
    end = await container.wait()
    assert (end.code, end.signal, end.message, end.reason) == (3, 0, "why\n", "Error")
    assert (tmp_path / "log").read_text() == "out\nerr\n"


async def test_a_signal_reads_as_kubernetes_says_it(tmp_path: Path) -> None:
    container = await start(tmp_path, "kill -KILL $$")
    end = await container.wait()
    assert (end.code, end.signal) == (137, 9)


async def test_sigterm_goes_to_the_first_process_only(tmp_path: Path) -> None:
    script = """
      sh -c 'trap "echo child > child" TERM; echo up > up; while :; do sleep 0.05; done' &
      trap 'exit 7' TERM; wait
    """
    container = await start(tmp_path, script)
    await until(tmp_path / "up")
    container.terminate()
    assert (await container.wait()).code == 7
    assert not (tmp_path / "child").exists()


async def test_what_the_first_process_leaves_behind_is_killed(tmp_path: Path) -> None:
    container = await start(tmp_path, "sleep 300 & echo $! > pid; exit 0")
    assert (await container.wait()).code == 0
    child = int(await until(tmp_path / "pid"))
    async with asyncio.timeout(10):
        while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
            await asyncio.sleep(0.02)


async def ended(pid: int) -> None:
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            await asyncio.sleep(0.02)


async def test_what_left_the_session_is_killed_with_the_container(tmp_path: Path) -> None:
    container = await start(
        tmp_path, "setsid sleep 300 & echo $! > pid; setsid sh -c 'echo $$ > other; sleep 300' & wait"
    )
    children = [int(await until(tmp_path / name)) for name in ("pid", "other")]
    container.kill()
    assert (await container.wait()).code == 137
    for child in children:
        await ended(child)


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[freeze.FrozenFilesystem]:
    why_not = freeze.available()
    if why_not is not None:
        pytest.skip(why_not)
    made = freeze.FrozenFilesystem(tmp_path / "frozen")
    yield made
    made.dispose()


@pytest.mark.root
@pytest.mark.parametrize("script", [": > {}", "(: > {}) & sleep 0.2"], ids=["the first process", "one that it left"])
async def test_a_container_has_not_ended_while_the_kernel_holds_a_process_of_it(
    tmp_path: Path, filesystem: freeze.FrozenFilesystem, script: str
) -> None:
    container = await start(tmp_path, script.format(filesystem.freeze()))
    waiting = asyncio.create_task(container.wait())
    await asyncio.sleep(0.4)
    assert container.kill()
    assert not waiting.done()
    (stuck,) = container.left()
    assert Path(f"/proc/{stuck}/stat").read_text().rpartition(")")[2].split()[0] == "D"
    filesystem.dispose()
    async with asyncio.timeout(10):
        await waiting
    assert container.left() == []
