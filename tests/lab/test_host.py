"""The lab's machines end in time, whatever a task of theirs does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from fleetwell.lab import virtual_node
from fleetwell.lab.kubelet import Kubelet
from fleetwell.lab.virtual_node import VirtualNode

STUBBORN = """
import asyncio
from fleetwell.lab import host

host.END_SECONDS = 0.3

async def never():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    running, other = asyncio.create_task(never()), asyncio.create_task(never(), name="the stubborn one")
    await asyncio.sleep(0)
    await host._end({which})

asyncio.run(main())
"""
HANGING = """
import asyncio, fcntl, os, signal, sys, threading, time
from fleetwell.lab import host

host.LAST_SECONDS = 0.5

async def main():
    stop = asyncio.Event()
    host._end_by_signal(stop)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    other = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)  # which nobody gives back

asyncio.run(main())
"""


def ended(which: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    began = time.monotonic()
    script = STUBBORN.replace("{which}", which)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False)
    return time.monotonic() - began, done


def test_tasks_that_do_not_end_are_named_and_not_waited_for() -> None:
    seconds, done = ended("running")
    assert done.returncode == 0
    assert "the stubborn one" in done.stdout
    assert seconds < 5


def test_a_loop_that_hangs_in_a_system_call_ends_in_time_and_says_where(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(tmp_path / "lock")], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert "in main" in done.stderr
    assert time.monotonic() - began < 5


async def test_a_power_off_that_was_not_heard_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation may be lost where it meets an answer of the same moment."""
    monkeypatch.setattr(virtual_node, "CANCEL_SECONDS", 0.05)
    cut = []
    heard = 0

    class Deaf:
        def lose_power(self) -> None:
            cut.append(True)

    async def run() -> None:
        nonlocal heard
        while heard < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard += 1

    node = VirtualNode.__new__(VirtualNode)
    node.name = "gpu-1"
    node._kubelet = cast("Kubelet", Deaf())
    node._task = asyncio.create_task(run())
    await asyncio.sleep(0)
    await node.power_off()
    assert (heard, cut) == (2, [True])
