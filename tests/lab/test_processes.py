"""Processes of the lab, with real ones."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetwell.lab import processes, sessions
from fleetwell.lab.processes import LabProcess, attach, attach_all
from fleetwell.lab.sessions import Ended, Identity

DEADLINE_S = 30.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[..., LabProcess]]:
    """Starts shell scripts, ends those that are left."""
    started: list[LabProcess] = []

    def start(script: str, *, ready: str = "ready", record: Path | None = None) -> LabProcess:
        process = processes.start(
            "script", ["sh", "-c", script], log=tmp_path / f"log{len(started)}", cwd=tmp_path, record=record
        )
        started.append(process)
        if ready:
            eventually(lambda: ready in process.log_tail())
        return process

    yield start
    for process in started:
        process.stop(0)


def test_a_process_leads_its_own_session_and_writes_to_its_log(shell: Callable[..., LabProcess]) -> None:
    process = shell("echo to-out; echo to-err >&2; echo ready; exec sleep 60")
    assert os.getsid(process.pid) == process.pid
    assert process.is_running()
    assert process.exit_code() is None
    assert process.log_tail().split() == ["to-out", "to-err", "ready"]
    assert process.log_tail(1) == "ready"


def test_a_process_that_obeys_sigterm_is_terminated(shell: Callable[..., LabProcess]) -> None:
    process = shell("echo ready; exec sleep 60")
    assert process.stop() is Ended.TERMINATED
    assert not process.is_running()
    assert process.exit_code() == -signal.SIGTERM
    assert process.stop() is Ended.ALREADY_GONE


def test_a_process_that_ignores_sigterm_is_killed_with_its_session(shell: Callable[..., LabProcess]) -> None:
    process = shell("trap '' TERM; sleep 61 & echo child $!; echo ready; while :; do sleep 62; done")
    child = sessions.identify(int(process.log_tail().split()[1]))
    assert process.stop(grace_s=0.1) is Ended.KILLED
    assert not process.is_running()
    assert not sessions.is_running(child)


def test_what_a_terminated_leader_leaves_behind_is_killed_too(shell: Callable[..., LabProcess]) -> None:
    process = shell("sleep 61 & echo child $!; echo ready; wait")
    child = sessions.identify(int(process.log_tail().split()[1]))
    assert process.stop() is Ended.TERMINATED
    assert not sessions.is_running(child)


def test_a_paused_process_is_terminated_and_not_killed(shell: Callable[..., LabProcess]) -> None:
    process = shell("echo ready; exec sleep 60")
    assert process.signal(signal.SIGSTOP)
    assert process.stop() is Ended.TERMINATED


def test_waiting_tells_whether_it_ended(shell: Callable[..., LabProcess]) -> None:
    process = shell("mkfifo gate; echo ready; read line < gate; exit 4")
    assert not process.wait(0)
    (process.log.parent / "gate").write_text("go\n")
    assert process.wait(DEADLINE_S)
    assert process.exit_code() == 4


def test_a_recorded_process_is_taken_up_and_its_record_goes_with_it(
    shell: Callable[..., LabProcess], tmp_path: Path
) -> None:
    record = tmp_path / "run" / "script.json"
    process = shell("echo ready; exec sleep 60", record=record)
    assert attach(record) == process
    assert attach_all(record.parent) == [process]
    assert process.stop() is Ended.TERMINATED
    assert attach(record) is None


def test_a_process_that_got_a_recorded_number_later_is_not_touched(shell: Callable[..., LabProcess]) -> None:
    process = shell("echo ready; exec sleep 60")
    pid, started, boot = process.identity
    for former in (Identity(pid, started - 1, boot), Identity(pid, started, "another-boot")):
        stale = LabProcess("former", former, process.log)
        assert not stale.is_running()
        assert not stale.signal(signal.SIGKILL)
        assert stale.stop(0) is Ended.ALREADY_GONE
    assert process.is_running()


def test_a_number_that_nobody_has_is_gone() -> None:
    child = subprocess.Popen(["true"])
    identity = sessions.identify(child.pid)
    child.wait()
    assert not sessions.is_running(identity)
    assert sessions.wait_gone(identity, 0)
    assert sessions.end(identity, grace_s=0) is Ended.ALREADY_GONE
    with pytest.raises(ProcessLookupError, match="no process"):
        sessions.identify(child.pid)


def test_a_name_with_spaces_and_parentheses_does_not_confuse(tmp_path: Path) -> None:
    program = tmp_path / "odd) S 1 (name"
    program.symlink_to("/bin/sleep")
    process = processes.start("odd", [str(program), "60"], log=tmp_path / "log")
    try:
        assert process.is_running()
        assert process.identity in sessions.members(process.identity)
    finally:
        assert process.stop() is Ended.TERMINATED


OWNER = """
import os, sys
from pathlib import Path
from fleetwell.lab import processes
for tied in (True, False):
    process = processes.start("x", ["sleep", "60"], log=Path("log"), record=Path(f"{tied}.json"), tied=tied)
print("started", flush=True)
sys.stdin.readline()
"""


def test_a_tied_process_ends_with_its_owner_and_another_outlives_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER)],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(processes.__file__).parents[2])},
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"started\n"
        tied, free = attach(tmp_path / "True.json"), attach(tmp_path / "False.json")
        assert tied is not None
        assert free is not None
        assert tied.is_running()
        owner.kill()
    try:
        eventually(lambda: not tied.is_running())
        assert free.is_running()
    finally:
        assert free.stop() is Ended.TERMINATED
