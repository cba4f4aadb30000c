"""The proof's workers: they may hang, crash or flood, and are never waited for beyond the deadline."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from fleetwell.probes import proof_crew
from fleetwell.probes.proof_crew import Job


def python(code: str) -> Job:
    return [sys.executable, "-S", "-c", code], os.environ


def test_workers_run_side_by_side_and_all_is_read() -> None:
    ended = proof_crew.run({name: python(f"print('{name}' * 3)") for name in "ab"}, 20)
    assert {name: one.output for name, one in ended.items()} == {"a": b"aaa\n", "b": b"bbb\n"}
    assert not any(one.trouble for one in ended.values())


def test_one_that_hangs_leaves_what_it_had_said_and_the_others_standing() -> None:
    hangs = python("import time; print('half', flush=True); time.sleep(60)")
    began = time.monotonic()
    ended = proof_crew.run({"hangs": hangs, "ends": python("print('whole')")}, 1.5)
    assert time.monotonic() - began < 4
    assert (ended["hangs"].output, ended["hangs"].trouble) == (b"half\n", "no answer within its time")
    assert ended["ends"].output == b"whole\n"


def test_a_crash_is_told_with_its_signal_or_code_and_its_last_words() -> None:
    ended = proof_crew.run(
        {
            "killed": python("import os; os.kill(os.getpid(), 11)"),
            "failed": python("raise SystemExit('no such device')"),
            "absent": (["/nonexistent/tool"], {}),
        },
        20,
    )
    assert "SIGSEGV" in ended["killed"].trouble
    assert ended["failed"].trouble == "exit code 1: no such device"
    assert "could not be started" in ended["absent"].trouble


def test_a_flood_is_cut_and_no_answer() -> None:
    code = "import os\nwhile True: os.write(1, b'x' * 65536)"
    ended = proof_crew.run({"floods": python(code)}, 20)["floods"]
    assert ended.trouble == "printed too much"
    assert len(ended.output) < 2 * proof_crew.OUTPUT_LIMIT


def test_a_program_with_work_elsewhere_is_asked_to_stop_before_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import time\nprint('begun', flush=True)\n"
        "try: time.sleep(60)\n"
        f"except KeyboardInterrupt: open({str(tmp_path / 'stopped')!r}, 'w').close()"
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background
    try:
        proof_crew.run({"diag": python(code)}, 4.0, polite=True)  # time for Python to start on a busy machine
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "stopped").exists()


def test_the_end_of_a_pipe_that_a_grandchild_holds_is_not_waited_for() -> None:
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(5)']); print(1)"
    )
    began = time.monotonic()
    assert proof_crew.run({"parent": python(code)}, 20)["parent"].output == b"1\n"
    assert time.monotonic() - began < 4
