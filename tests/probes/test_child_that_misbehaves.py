"""Children that multiply, drown their parent, refuse every signal, or whose number somebody else has by now."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetwell.probes.child import Answer, Hung, Nonsense, Outcome, SupervisedChild

ENV = {"PATH": "/usr/bin:/bin"}
LIMIT = 64 * 1024


@pytest.fixture
def child() -> Iterator[SupervisedChild]:
    made = SupervisedChild("test", limit=LIMIT)
    yield made
    made.close()


async def run(child: SupervisedChild, code: str, *, deadline: float = 5.0) -> Outcome:
    return await child.run([sys.executable, "-S", "-c", code], deadline=deadline, env=ENV)


def of_group(group: int) -> set[int]:
    """Give the processes of a group that are there and not dead."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] not in "ZX":
                    found.add(int(entry.name))
    return found


def rss_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


async def test_a_child_that_multiplies_is_ended_with_all_its_children(child: SupervisedChild) -> None:
    code = """
import os, signal, time
for number in range(signal.SIGRTMAX):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
for _ in range(6): os.fork()  # 64 of them
time.sleep(600)
"""
    task = asyncio.create_task(run(child, code, deadline=1.5))
    group, most = 0, 0
    while not task.done():
        group = child.outstanding or group
        most = max(most, len(of_group(group)) if group else 0)
        await asyncio.sleep(0.1)
    assert await task == Hung(deadline=1.5, abandoned=False)
    assert most == 64, "they did not multiply, so this shows nothing"
    async with asyncio.timeout(5):
        while of_group(group):
            await asyncio.sleep(0.01)


async def test_a_crowd_that_prints_without_end_fills_no_memory(child: SupervisedChild) -> None:
    code = "import os\nfor _ in range(4): os.fork()\nwhile True: os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)"
    assert isinstance(await run(child, code), Nonsense)  # What is needed for one is there from here on.
    before = rss_kib()
    for _ in range(10):
        started = time.monotonic()
        assert isinstance(await run(child, code), Nonsense)
        assert time.monotonic() - started < 2
    assert rss_kib() <= before + 1024


async def test_a_child_that_prints_slowly_for_ever_is_hung_and_its_output_bounded(child: SupervisedChild) -> None:
    code = "import os,time\nwhile True: os.write(1, b'x' * 100); time.sleep(.01)"
    assert await run(child, code, deadline=0.4) == Hung(deadline=0.4, abandoned=False)


async def test_a_child_that_closes_its_outputs_and_stays_is_hung(child: SupervisedChild) -> None:
    code = "import os,time\nprint(1, flush=True)\nos.close(1); os.close(2); time.sleep(600)"
    assert await run(child, code, deadline=0.4) == Hung(deadline=0.4, abandoned=False)


async def test_a_number_that_was_given_back_is_never_signalled(
    child: SupervisedChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(await run(child, "print(1)"), Answer)
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _signal: signalled.append(group))
    monkeypatch.setattr(os, "kill", lambda pid, _signal: signalled.append(pid))
    await child.gone()
    child.close()
    assert signalled == []


async def test_a_child_that_somebody_else_reaped_is_over_and_never_signalled(
    child: SupervisedChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be anybody's: what it printed decides."""
    signalled: list[int] = []
    task = asyncio.create_task(run(child, "print(1)"))
    await asyncio.sleep(0)
    pid = child.outstanding
    assert pid is not None
    os.waitpid(pid, 0)  # noqa: ASYNC222 (the loop must not have its turn before)
    monkeypatch.setattr(os, "killpg", lambda group, _signal: signalled.append(group))
    outcome = await task
    assert isinstance(outcome, Answer)
    assert outcome.output == b"1\n"
    assert child.outstanding is None
    assert signalled == []


def start_as(pid: int) -> subprocess.Popen[bytes] | None:
    """Start an innocent process that has this number, in a session and group of its own."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(50):
        try:
            last.write_text(str(pid - 1))
        except OSError:
            return None
        innocent = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
        if innocent.pid == pid:
            return innocent
        innocent.kill()
        innocent.wait()
    return None


@pytest.mark.root
async def test_the_next_owner_of_a_number_is_neither_waited_for_nor_killed(child: SupervisedChild) -> None:
    outcome = await run(child, "import os; print(os.getpid())")
    assert isinstance(outcome, Answer)
    innocent = start_as(int(outcome.output))
    if innocent is None:
        pytest.skip("this machine gives no number on demand")
    try:
        assert child.outstanding is None
        async with asyncio.timeout(1):
            await child.gone()
        assert isinstance(await run(child, "print(2)"), Answer)
        assert await run(child, "import time; time.sleep(600)", deadline=0.2) == Hung(deadline=0.2, abandoned=False)
        child.close()
        assert innocent.poll() is None
    finally:
        os.kill(innocent.pid, signal.SIGKILL)
        innocent.wait()
