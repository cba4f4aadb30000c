"""A child that SIGKILL does not end. Needs root and loop devices, and is skipped with the reason where they lack."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetwell.lab import freeze
from fleetwell.lab.faults import FaultError, inject
from fleetwell.lab.freeze import FreezeError, FrozenFilesystem
from fleetwell.lab.hardware import Hardware

_DEADLINE_S = 10.0


@pytest.fixture(scope="module")
def freezing() -> None:
    reason = freeze.available()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def filesystem(tmp_path: Path, freezing: None) -> Iterator[FrozenFilesystem]:
    made = FrozenFilesystem(tmp_path / "frozen")
    yield made
    made.dispose()


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state_of(process: "subprocess.Popen[bytes]") -> str:
    return Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def stuck(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it stays in state D; a moment in D is every process's when it reads a disk."""
    for _ in range(20):
        if state_of(process) != "D":
            return False
        time.sleep(0.01)
    return True


def call_nvml(node: Hardware) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"], env={**os.environ, **node.environment()}
    )


@pytest.mark.root
def test_who_writes_to_it_outlives_sigkill_until_it_thaws(filesystem: FrozenFilesystem) -> None:
    trap = filesystem.freeze()
    writer = subprocess.Popen(["dd", "if=/dev/zero", f"of={trap}", "count=1", "status=none"])
    eventually(lambda: stuck(writer))

    writer.send_signal(signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        writer.wait(0.3)  # it must still be there: the time is what is tested
    assert state_of(writer) == "D"

    filesystem.thaw()
    assert writer.wait(_DEADLINE_S) == -signal.SIGKILL


@pytest.mark.root
def test_disposing_of_it_leaves_no_mount_and_no_folder(filesystem: FrozenFilesystem) -> None:
    filesystem.freeze()
    assert filesystem.is_mounted()

    filesystem.dispose()
    filesystem.dispose()

    assert not filesystem.is_mounted()
    assert not filesystem.folder.exists()


@pytest.mark.root
def test_it_is_not_frozen_twice(filesystem: FrozenFilesystem) -> None:
    filesystem.freeze()
    with pytest.raises(FreezeError, match="mounted already"):
        filesystem.freeze()
    assert filesystem.is_mounted()


@pytest.mark.root
def test_another_process_can_release_all_below_a_folder(filesystem: FrozenFilesystem, tmp_path: Path) -> None:
    filesystem.freeze()

    assert freeze.release_under(tmp_path) == [filesystem.mount_point]
    assert not filesystem.is_mounted()
    assert freeze.release_under(tmp_path) == []


@pytest.mark.root
@pytest.mark.parametrize("end", ["reboot", "clear", "dispose"])
def test_an_nvml_call_hangs_in_the_kernel_until_the_node_is_rebooted_or_cleared(
    node: Hardware, freezing: None, end: str
) -> None:
    inject(node, "nvml-hang-unkillable", where="init")
    child = call_nvml(node)
    eventually(lambda: stuck(child))
    child.kill()

    if end == "reboot":
        node.reboot()
    elif end == "clear":
        inject(node, "clear")
    else:
        node.dispose()

    assert child.wait(_DEADLINE_S) == -signal.SIGKILL
    assert not node.freezer.is_mounted()


def test_without_root_it_says_so_and_nothing_changes(node: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert freeze.available() == "freezing a filesystem needs root"

    def refuse(*_argv: str) -> None:
        message = "must be superuser"
        raise FreezeError(message)

    monkeypatch.setattr(freeze, "_tool", refuse)
    before = node.state_file.read_bytes()
    with pytest.raises(FaultError, match="nvml-hang works without"):
        inject(node, "nvml-hang-unkillable")
    assert node.state_file.read_bytes() == before
    assert not node.freezer.folder.exists()
