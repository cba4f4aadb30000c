"""The wall clock is set while the agent runs: what is published, how often, and what is believed does not change."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from agent.test_publish import Bench, condition, finding
from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import Boot
from fleetwell.agent.publish import COUNT_GAP
from fleetwell.agent.settings import Timing
from fleetwell.agent.sources import ChildSource
from fleetwell.health.vocabulary import BootId, ConditionStatus
from fleetwell.kube.client import Client
from fleetwell.kube.heartbeat import HeartbeatLease
from fleetwell.probes import launch
from fleetwell.probes.inventory import Expected, MachineMemory
from fleetwell.probes.report import Report

YEAR = 365 * 86_400.0
STEPS = pytest.mark.parametrize("step", [YEAR, -YEAR, -3600.0], ids=["a year on", "a year back", "an hour back"])


@STEPS
async def test_a_step_makes_no_write_and_moves_no_condition(step: float) -> None:
    bench = Bench()
    publisher = bench.publisher()
    await publisher.publish()
    since, writes = bench.since(), len(bench.kinds())
    bench.wall += step
    await publisher.publish()
    assert len(bench.kinds()) == writes
    bench.wanted = (condition(message="every check passed again"),)
    await publisher.publish()
    assert bench.since() == since


@STEPS
async def test_what_only_counts_on_is_written_as_often_as_before(step: float) -> None:
    bench = Bench()
    publisher = bench.publisher()
    bench.status = msgspec.structs.replace(bench.status, findings=(finding(1),))
    await publisher.publish()
    writes = len(bench.kinds())
    bench.wall += step
    bench.status = msgspec.structs.replace(bench.status, findings=(finding(2),))
    await publisher.publish()
    assert len(bench.kinds()) == writes
    bench.monotonic += COUNT_GAP
    await publisher.publish()
    assert len(bench.kinds()) == writes + 1


@STEPS
async def test_a_change_after_a_step_is_told_at_once(step: float) -> None:
    bench = Bench()
    publisher = bench.publisher()
    await publisher.publish()
    bench.wall += step
    bench.wanted = (condition(ConditionStatus.FALSE),)
    await publisher.publish()
    assert bench.api.conditions()["fleetwell.io/GPUHealthy"].status == "False"


@STEPS
async def test_a_debounce_counts_looks_and_no_time(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[list[str]] = []
    monkeypatch.setattr(launch, "module", lambda _name, _settings: said[0])
    wall, monotonic = [2e9], [0.0]
    boot = Boot(boot_id=BootId("b"), booted_at=0.0, serial="s", instance_type="", driver_branch=None)
    assessment = Assessment(boot, MachineMemory(serial="s"), Expected(), wall=lambda: wall[0])
    timing = Timing(interval=60, deadline=5)
    source = ChildSource(
        "nvml", ("nvml",), timing, dict, assessment, wall=lambda: wall[0], monotonic=lambda: monotonic[0]
    )

    async def look(*faults: str) -> set[str]:
        report = Report("nvml")
        report.covers("host")
        for fault in faults:
            report.fault(fault, "host", "seen")
        said[:] = [["/bin/echo", report.encode()]]
        await source.look()
        assessment.tick()
        return {one.fault for one in assessment.findings}

    assert await look("GpuMissing") == set()
    wall[0] += step
    assert await look("GpuMissing") == {"GpuMissing"}
    wall[0] -= step
    assert await look() == {"GpuMissing"}
    wall[0] += step
    assert await look() == set()
    assert source.last_resolved == 0.0  # Whether it is alive is told by a clock that nobody sets.
    source.child.close()


@STEPS
async def test_the_heartbeat_goes_on_in_its_own_period(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease bears the wall clock for people to read; whoever waits for it waits by his own clock for a change."""
    told: list[str] = []
    wall, monotonic, beats = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], [0.0], [0.0]

    class Over(Exception):  # noqa: N818 (the end of the test's time)
        pass

    async def sleep(seconds: float) -> None:
        monotonic[0] += seconds
        beats.append(monotonic[0])
        wall[0] += dt.timedelta(seconds=step + seconds)
        if len(beats) > 3:
            raise Over

    lease = HeartbeatLease(
        Client.__new__(Client),
        name="n",
        namespace="fleetwell",
        identity="n/b",
        period=60.0,
        now=lambda: monotonic[0],
        sleep=sleep,
        wall=lambda: wall[0],
    )

    async def renew(spec: object) -> None:
        told.append(str(spec))

    monkeypatch.setattr(lease, "_renew", renew)
    with pytest.raises(Over):
        await lease.run()
    assert beats == [0.0, 60.0, 120.0, 180.0]
    assert len(set(told)) == 3
    assert lease.last_beat == 120.0
