"""The supervised child, with real processes that behave as badly as diagnostics do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from fleetwell.probes.child import Answer, Crashed, Hung, Nonsense, Outcome, Outstanding, SupervisedChild

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def child() -> Iterator[SupervisedChild]:
    made = SupervisedChild("test", limit=64 * 1024)
    yield made
    made.close()


async def run(child: SupervisedChild, code: str, *, deadline: float = 5.0) -> Outcome:
    return await child.run([sys.executable, "-S", "-c", code], deadline=deadline, env=ENV)


async def until_gone(pid: int) -> None:
    give_up = time.monotonic() + 5
    while time.monotonic() < give_up:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"process {pid} is still there")


def open_descriptors() -> set[int]:
    """Give the descriptors of this process; the one of the listing itself is closed by the time it is looked at."""
    numbers = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 (names are wanted)
    return {number for number in numbers if _is_open(number)}


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


async def test_an_answer_is_what_it_printed(child: SupervisedChild) -> None:
    outcome = await run(child, "print('42')")
    assert isinstance(outcome, Answer)
    assert outcome.output == b"42\n"
    assert child.outstanding is None


async def test_a_child_gets_three_descriptors_an_empty_input_and_the_environment_given(child: SupervisedChild) -> None:
    code = "import os,sys; print(len(os.listdir('/proc/self/fd')), repr(sys.stdin.read()), sorted(os.environ))"
    outcome = await run(child, code)
    assert isinstance(outcome, Answer)
    assert outcome.output.startswith(b"4 ''")  # The fourth is the folder being listed.
    assert b"HOME" not in outcome.output


async def test_a_child_that_ignores_sigterm_is_hung_at_its_deadline_and_killed(child: SupervisedChild) -> None:
    started = time.monotonic()
    outcome = await run(child, "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)", deadline=0.3)
    assert outcome == Hung(deadline=0.3, abandoned=False)
    assert time.monotonic() - started < 1.3
    assert child.outstanding is None


async def test_a_stopped_child_is_killed_too(child: SupervisedChild) -> None:
    assert await run(child, "import os; os.kill(os.getpid(), 19)", deadline=0.3) == Hung(deadline=0.3, abandoned=False)


async def test_a_crash_names_the_signal_and_the_last_words(child: SupervisedChild) -> None:
    outcome = await run(
        child, "import os,sys; sys.stderr.write('the end'); sys.stderr.flush(); os.kill(os.getpid(),11)"
    )
    assert outcome == Crashed(reason="signal 11 (SIGSEGV)", stderr="the end")


async def test_of_long_last_words_the_end_is_kept(child: SupervisedChild) -> None:
    outcome = await run(child, "import sys; sys.stderr.write('x' * 20_000 + 'the end'); sys.exit(1)")
    assert isinstance(outcome, Crashed)
    assert outcome.stderr.endswith("the end")
    assert len(outcome.stderr) == 4096


@pytest.mark.parametrize("code", [1, 2, 255])
async def test_no_exit_code_but_zero_is_an_answer(child: SupervisedChild, code: int) -> None:
    outcome = await run(child, f"print('all is well'); raise SystemExit({code})")
    assert outcome == Crashed(reason=f"exit code {code}", output=b"all is well\n")


@pytest.mark.parametrize(("number", "name"), [(1, "SIGHUP"), (9, "SIGKILL"), (40, "real-time signal")])
async def test_no_signal_leaves_an_answer(child: SupervisedChild, number: int, name: str) -> None:
    outcome = await run(child, f"import os; os.write(1, b'all is well'); os.kill(os.getpid(), {number})")
    assert outcome == Crashed(reason=f"signal {number} ({name})")


async def test_a_child_that_is_interrupted_ends_as_a_crash_and_the_next_one_runs(child: SupervisedChild) -> None:
    child.interrupt()  # Nothing runs: nothing to do.
    running = asyncio.create_task(run(child, "import time; print('begun', flush=True); time.sleep(600)", deadline=60))
    while child.outstanding is None:
        await asyncio.sleep(0.01)
    child.interrupt()
    outcome = await asyncio.wait_for(running, 5)
    assert isinstance(outcome, Crashed)
    assert outcome.reason == "signal 9 (SIGKILL)"
    child.interrupt()
    assert isinstance(await run(child, "print(1)"), Answer)


async def test_a_child_that_prints_too_much_is_not_waited_for(child: SupervisedChild) -> None:
    started = time.monotonic()
    outcome = await run(
        child, "import os,time; os.write(1, b'x' * 65536); os.write(1, b'x'); time.sleep(600)", deadline=60
    )
    assert isinstance(outcome, Nonsense)
    assert time.monotonic() - started < 30


async def test_no_descriptor_is_left_open_whatever_the_child_did(child: SupervisedChild, tmp_path: Path) -> None:
    script = "import os,sys; os.write(2, b'y' * 70000) if sys.argv[1] == 'flood' else print(sys.argv[1])"

    async def all_kinds() -> None:
        for word in ("well", "flood"):
            await child.run([sys.executable, "-S", "-c", script, word], deadline=5, env=ENV)
        await run(child, "import time; time.sleep(600)", deadline=0.1)
        await child.run([str(tmp_path / "missing")], deadline=1, env=ENV)

    await all_kinds()
    before = open_descriptors()
    await all_kinds()
    assert open_descriptors() == before


async def test_another_exit_code_is_a_crash_whatever_it_printed(child: SupervisedChild) -> None:
    outcome = await run(child, "print('all is well'); raise SystemExit(3)")
    assert isinstance(outcome, Crashed)
    assert outcome.reason == "exit code 3"


async def test_success_without_a_word_is_nonsense(child: SupervisedChild) -> None:
    assert isinstance(await run(child, "print()"), Nonsense)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_flood_is_cut_off_and_the_child_killed(child: SupervisedChild, stream: str) -> None:
    outcome = await run(child, f"import sys\nwhile True: sys.{stream}.write('x' * 4096)")
    assert isinstance(outcome, Nonsense)
    assert child.outstanding is None


async def test_a_grandchild_in_the_group_dies_with_it(child: SupervisedChild) -> None:
    code = "import os,time\npid = os.fork()\nif pid == 0: time.sleep(600)\nprint(pid, flush=True)\nos._exit(0)"
    outcome = await run(child, code)
    assert isinstance(outcome, Answer)
    await until_gone(int(outcome.output))


async def test_a_grandchild_that_left_the_group_with_the_pipe_does_not_hold_the_answer_up(
    child: SupervisedChild,
) -> None:
    code = "import os,time\npid = os.fork()\nif pid == 0: os.setsid(); time.sleep(600)\ntime.sleep(.1)"
    started = time.monotonic()
    outcome = await run(child, code + "\nprint(pid, flush=True)\nos._exit(0)")
    assert time.monotonic() - started < 3
    assert isinstance(outcome, Answer)
    os.kill(int(outcome.output), signal.SIGKILL)


async def test_a_program_that_is_not_there_is_a_crash_that_says_so(child: SupervisedChild) -> None:
    outcome = await child.run(["/no/such/program"], deadline=1.0, env=ENV)
    assert isinstance(outcome, Crashed)
    assert "could not be started" in outcome.reason


async def test_without_a_pidfd_the_end_is_seen_by_looking(
    child: SupervisedChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, f"no pidfd for {pid}")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert isinstance(await run(child, "print(1)"), Answer)
    assert isinstance(await run(child, "import time; time.sleep(600)", deadline=0.2), Hung)


async def test_an_abandoned_child_blocks_only_its_own_probe_until_it_is_gone(
    child: SupervisedChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that SIGKILL does not end, made by a killpg that does nothing."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda _group, _signal: None)
        outcome = await run(child, "import time; time.sleep(600)", deadline=0.2)
        assert outcome == Hung(deadline=0.2, abandoned=True)
        assert child.abandoned == 1
        pid = child.outstanding
        assert pid is not None
        assert isinstance(await run(child, "print(1)"), Outstanding)
    os.killpg(pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        await child.gone()
    assert isinstance(await run(child, "print(1)"), Answer)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # It was reaped: a zombie would still be there.


async def test_a_cancelled_run_kills_its_child(child: SupervisedChild) -> None:
    task = asyncio.create_task(run(child, "import time; time.sleep(600)", deadline=60))
    await asyncio.sleep(0)  # It is started before the first wait.
    pid = child.outstanding
    assert pid is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        await child.gone()
    await until_gone(pid)


async def test_a_long_answer_arrives_whole(child: SupervisedChild, tmp_path: Path) -> None:
    (tmp_path / "answer").write_bytes(b"y" * 60_000)
    outcome = await child.run(["/bin/cat", str(tmp_path / "answer")], deadline=5, env=ENV)
    assert isinstance(outcome, Answer)
    assert len(outcome.output) == 60_000
