"""Ten diagnostics in a row that nothing can kill: each is told in time, none of them costs the agent anything.

The hang is the kernel's own: a child that writes to a frozen filesystem sleeps in state D and survives SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import Boot
from fleetwell.agent.settings import Timing
from fleetwell.agent.sources import ChildSource
from fleetwell.health.vocabulary import BootId, ConditionStatus, ConditionType
from fleetwell.lab import freeze
from fleetwell.probes import launch
from fleetwell.probes.inventory import Expected, MachineMemory
from fleetwell.probes.report import Report

pytestmark = pytest.mark.root

DEADLINE = 0.5
ROUNDS = 10
WARM_UP = 2
"""Rounds after which the process holds what it will hold."""


@dataclass(frozen=True)
class Load:
    """What this process, the agent, holds."""

    rss_kib: int
    tasks: int
    threads: int
    files: int

    @classmethod
    def now(cls) -> Load:
        lines = Path("/proc/self/status").read_text().splitlines()
        status = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.strip()}
        return cls(
            rss_kib=int(status["VmRSS"]),
            tasks=len(asyncio.all_tasks()),
            threads=int(status["Threads"]),
            files=len(list(Path("/proc/self/fd").iterdir())),
        )


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[freeze.FrozenFilesystem]:
    why_not = freeze.available()
    if why_not is not None:
        pytest.skip(why_not)
    made = freeze.FrozenFilesystem(tmp_path / "frozen")
    yield made
    made.dispose()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_ten_hangs_in_a_row_are_each_told_in_time_and_leave_nothing_behind(
    filesystem: freeze.FrozenFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report("nvml")
    report.covers("host")
    program = ["/bin/echo", report.encode()]
    monkeypatch.setattr(launch, "module", lambda _name, _settings: program)
    boot = Boot(boot_id=BootId("b"), booted_at=0.0, serial="s", instance_type="", driver_branch=None)
    assessment = Assessment(boot, MachineMemory(serial="s"), Expected())
    source = ChildSource("nvml", ("nvml",), Timing(interval=60, deadline=DEADLINE), dict, assessment)

    def faults() -> set[str]:
        return {one.fault for one in assessment.findings}

    def gpu() -> ConditionStatus:
        return next(one.status for one in assessment.conditions() if one.type is ConditionType.GPU)

    await source.look()
    assert faults() == set()
    loads: list[Load] = []
    well = program
    for _ in range(ROUNDS):
        program = ["/bin/sh", "-c", f": > {filesystem.freeze()}"]
        started = time.monotonic()
        await source.look()
        assert time.monotonic() - started < DEADLINE + 1.0
        assert faults() == {"ProbeHung"}
        assert gpu() is ConditionStatus.UNKNOWN
        stuck = source.child.outstanding
        assert stuck is not None
        assert state_of(stuck) == "D", "the child is not beyond SIGKILL, so this shows nothing"

        await source.look()  # The next look does not wait for it, and starts no second one beside it.
        assert source.child.outstanding == stuck
        assert faults() == {"ProbeHung"}

        filesystem.dispose()
        program = well
        async with asyncio.timeout(5):
            await source.child.gone()
        with pytest.raises(ProcessLookupError):
            os.kill(stuck, 0)
        for _ in range(3):
            await source.look()
        assert faults() == set()
        assert gpu() is ConditionStatus.TRUE
        loads.append(Load.now())

    assert source.child.abandoned == ROUNDS
    first, last = loads[WARM_UP], loads[-1]
    assert last.tasks == first.tasks
    assert last.threads == first.threads
    assert last.files == first.files
    assert last.rss_kib <= first.rss_kib + 512
    source.child.close()
