"""A tree that somebody hands over may hold anything: it is read in bounded time and memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GPU = {"vendor": "0x10de\n", "class": "0x030200\n", "device": "0x2330\n"}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def round_about(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("made", [fifo, endless, round_about])
@pytest.mark.parametrize("name", ["vendor", "class", "config", "current_link_width"])
def test_a_device_of_a_hostile_tree_is_read_like_any_other(
    tmp_path: Path, made: Callable[[Path], None], name: str
) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    for attribute, text in GPU.items():
        (device / attribute).write_text(text)
    (device / name).unlink(missing_ok=True)
    made(device / name)
    done = subprocess.run(
        [sys.executable, "-m", "fleetwell", "diagnose", "--host-root", str(tmp_path), "-o", "line"],
        capture_output=True,
        check=False,
        timeout=30,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
    )
    judged = name in {"config", "current_link_width"}
    assert (done.returncode, done.stderr) == (0 if judged else 2, b""), done
