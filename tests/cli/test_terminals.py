"""What the commands print goes to pipes, narrow screens, full disks and terminals that know few characters."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

NAME = "py\N{LATIN SMALL LETTER L WITH STROKE}"
LOST = f"[ 1843.308145] NVRM: Xid (PCI:0000:05:00): 79, pid=7, name={NAME}, GPU has fallen off the bus.\n"
FLEETWELL = (sys.executable, "-m", "fleetwell")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.log"
    path.write_text(LOST, encoding="utf-8")
    return path


def run(command: str, *, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of the shell in which ``fleetwell`` is this one."""
    line = f'fleetwell() {{ {" ".join(FLEETWELL)} "$@"; }}; {command}'
    return subprocess.run(
        ["/bin/sh", "-c", line],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


def on_screen(width: int, *arguments: str) -> list[str]:
    """Run a command on a terminal of so many columns; give its lines without colours."""
    ours, its = pty.openpty()
    with os.fdopen(ours, "rb") as screen, os.fdopen(its, "wb") as terminal:
        environment = {**os.environ, "COLUMNS": str(width)}
        with subprocess.Popen([*FLEETWELL, *arguments], stdout=terminal, env=environment) as command:
            terminal.close()
            said = b""
            try:
                while chunk := screen.read1(65536):
                    said += chunk
            except OSError:  # the terminal's other end is closed
                pass
            assert command.wait(timeout=60) == 0
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in said.decode().splitlines()]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_character_that_the_terminal_does_not_know_costs_no_verdict(log: Path, encoding: str) -> None:
    done = run(f"fleetwell diagnose --kernel-log {log}", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.startswith(b"BAD: GpuFallenOffBus")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-", "| true; exit 1"])
def test_output_that_nobody_takes_costs_no_verdict(log: Path, closed: str) -> None:
    done = run(f"fleetwell diagnose --kernel-log {log} {closed}")
    assert done.returncode == 1
    assert b"error" not in done.stderr


def test_a_closed_input_is_an_empty_one() -> None:
    done = run("fleetwell diagnose --kernel-log - -o line <&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, b"UNKNOWN: ProbeSilent on host\n", b"")


@pytest.mark.parametrize(("command", "code"), [("diagnose --kernel-log -", 2), ("faults", 1), ("faults show 79", 1)])
def test_a_full_disk_is_said_in_a_line(command: str, code: int) -> None:
    done = run(f"fleetwell {command} > /dev/full", stdin=LOST.encode())
    assert done.returncode == code
    (line,) = done.stderr.decode().splitlines()
    assert re.match("error: .*No space left on device", line)


def test_a_verb_that_is_nearly_right_gets_a_hint() -> None:
    assert b"No such command 'diagnos'. Did you mean 'diagnose'?" in run("fleetwell diagnos").stderr


def test_a_verb_whose_extra_is_not_installed_names_it(tmp_path: Path) -> None:
    (tmp_path / "cryptography.py").write_text("raise ModuleNotFoundError(name='cryptography')\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = run("fleetwell lab status", PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "error: fleetwell lab needs cryptography, which is not installed",
        "hint: pip install 'fleetwell[lab]'",
    ]
    assert run("fleetwell --help", PYTHONPATH=path).returncode == 0


def test_a_narrow_screen_has_whole_names_and_readable_sentences() -> None:
    lines = on_screen(80, "faults")
    assert lines[0].split() == ["FAULT", "CONDITION", "VERDICT", "RECOVERY"]
    at = next(number for number, line in enumerate(lines) if line.startswith("GpuFallenOffBus "))
    assert lines[at].split() == ["GpuFallenOffBus", "GPUHealthy", "BAD", "reboot"]
    assert lines[at + 1] == "    The GPU no longer answers on the PCIe bus."
    assert max(map(len, lines)) <= 80


def test_a_wide_screen_has_the_sentences_beside_the_names() -> None:
    line = next(line for line in on_screen(160, "faults") if line.startswith("GpuFallenOffBus "))
    assert line.endswith("The GPU no longer answers on the PCIe bus.")


@contextlib.contextmanager
def heard(number: int) -> Iterator[None]:
    """Have programs that are started in here hear a signal that this one was started without (``pytest &``)."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_proof_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    """Its processes have sessions of their own, so no terminal ends them; here its level would take minutes."""
    mark = f"FLEETWELL_TEST={tmp_path}"

    def ours() -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    environment = {**os.environ, "FLEETWELL_TEST": str(tmp_path)}
    argv = [*FLEETWELL, "prove", "--device", "cpu", "--level", "long"]
    with heard(number), subprocess.Popen(argv, env=environment, stdout=PIPE, stderr=PIPE) as command:
        try:
            deadline = time.monotonic() + 60
            while len(ours()) < 3:  # itself, the proof, a worker
                assert command.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            command.send_signal(number)
            said, complaint = command.communicate(timeout=30)
        finally:
            command.kill()
    assert (command.returncode, said) == (2, b"")
    assert complaint == b"error: interrupted before there was an answer\n"
    deadline = time.monotonic() + 20
    while ours():
        assert time.monotonic() < deadline, ours()
        time.sleep(0.05)
