"""The kernel log on its way to triage: owners, missing records, the journal, clocks that are set."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fleetwell.agent import kernel_events
from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import Boot
from fleetwell.agent.kernel_events import KernelEvents
from fleetwell.health.log_gaps import MAX_GAPS, Gap, gaps_in, joined
from fleetwell.health.stimuli import Adopt, Tick
from fleetwell.health.vocabulary import BootId, ConditionStatus, ConditionType
from fleetwell.probes.inventory import Expected, MachineMemory

BOOT_ID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
BOOTED = 1_700_000_000.0
LOST = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PODS = ["5f0c9f5e-1f2a-4b7e-9d2a-6d1b5f3c2a10", "11111111-2222-3333-4444-555555555555", "0" * 32]


class Host:
    """A host's root with a kernel log and perhaps a journal, and the agent's reader of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "dev").mkdir()
        (root / "usr/bin").mkdir(parents=True)
        self.kmsg = root / "dev/kmsg"
        self.kmsg.touch()
        self.now = BOOTED + 10_000.0
        self.uptime = 10_000.0
        self.begin()

    def begin(self, booted_at: float = BOOTED) -> None:
        boot = Boot(boot_id=BootId(BOOT_ID), booted_at=booted_at, serial="s", instance_type="", driver_branch=None)
        self.assessment = Assessment(boot, MachineMemory(serial="s"), Expected(), wall=lambda: self.now)
        self.events = KernelEvents(
            self.kmsg,
            self.root / "position.json",
            self.assessment,
            wall=lambda: self.now,
            monotonic=lambda: self.uptime,
        )

    async def again(self, booted_at: float = BOOTED) -> None:
        """End the agent and begin it anew."""
        await self.events.close()
        self.begin(booted_at)
        until = self.events.judged_until()
        self.assessment.take(Adopt(boot_id=BootId(BOOT_ID), events_until=until))

    def say(self, *records: tuple[int, float, str]) -> None:
        with self.kmsg.open("a") as file:
            file.writelines(f"3,{number},{int(at * 1e6)},-;{text}\n" for number, at, text in records)

    def journal(self, *entries: tuple[float, str], then: str = "", facility: str = "0") -> None:
        """Put a journalctl there that prints these."""
        lines = [
            json.dumps(
                {
                    "MESSAGE": text,
                    "_TRANSPORT": "kernel",
                    "SYSLOG_FACILITY": facility,
                    "_SOURCE_MONOTONIC_TIMESTAMP": str(int(at * 1e6)),
                    "__REALTIME_TIMESTAMP": "1",
                    "_BOOT_ID": BOOT_ID.replace("-", ""),
                }
            )
            for at, text in entries
        ]
        (self.root / "entries").write_text("".join(f"{line}\n" for line in lines))
        script = self.root / "usr/bin/journalctl"
        asked, printed = self.root / "asked", self.root / "entries"
        script.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n{then or f"cat {printed}"}\n')
        script.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        return (self.root / "asked").read_text().splitlines() if (self.root / "asked").exists() else []

    async def read(self) -> None:
        """Read the log, and what of the journal is asked because of it."""
        self.events.tail.close()
        self.events.tail.start()
        async with asyncio.timeout(10):
            await self.events.tail.caught_up.wait()
            self.events.report()
            while self.events._missing:
                await asyncio.sleep(0.01)

    @property
    def faults(self) -> set[str]:
        return {one.fault for one in self.assessment.findings}

    @property
    def looked(self) -> bool:
        return any(probe.name == "kernel_log" for probe in self.assessment.status().probes)

    @property
    def evidence(self) -> str:
        return "\n".join(line for one in self.assessment.findings for line in one.evidence)

    def monitoring(self) -> ConditionStatus:
        return next(one.status for one in self.assessment.conditions() if one.type is ConditionType.MONITORING)


@pytest_asyncio.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(kernel_events, "JOURNAL_PAUSE", 0.01)
    made = Host(tmp_path)
    yield made
    await made.events.close()


# --- owners ----------------------------------------------------------------------------------------------------------


def crash(host: Host, number: int, pid: int, pod: str) -> None:
    """One process of a pod has a fault of the kind that counts by owner, and is still there when its line is read."""
    folder = host.root / f"proc/{pid}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{pod}/ab\n")
    (folder / "stat").write_text(f"{pid} (python) S 1 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 100 1 1\n")
    host.say((number, 9000.0 + number, f"NVRM: Xid (PCI:0000:05:00): 31, pid={pid}, name=python, MMU Fault"))


async def test_one_pod_that_crashes_again_and_again_is_no_suspicion(host: Host) -> None:
    for number in range(6):
        crash(host, number, 100 + number, PODS[0])
    await host.read()
    assert [one.suspected for one in host.assessment.findings] == [False]


async def test_the_same_fault_in_different_pods_makes_the_gpu_suspected(host: Host) -> None:
    for number, pod in enumerate(PODS):
        crash(host, number, 100 + number, pod)
    await host.read()
    assert [one.suspected for one in host.assessment.findings] == [True]


async def test_crashes_of_processes_that_are_gone_suspect_nobody(host: Host) -> None:
    text = "NVRM: Xid (PCI:0000:05:00): 31, pid={}, name=python, MMU Fault"
    host.say(*((number, 9000.0 + number, text.format(100 + number)) for number in range(6)))
    await host.read()
    assert [one.suspected for one in host.assessment.findings] == [False]


# --- missing records -------------------------------------------------------------------------------------------------


def test_gaps_lie_between_the_records_that_were_read() -> None:
    raws = [b"6,5,50,-;a\n", b"no record", b"6,6,60,-;b\n", b"6,9,90,-;c\n", b"6,0,1,-;another boot\n"]
    assert gaps_in(raws, None) == [Gap(after=0, before=50, missing=5), Gap(after=60, before=90, missing=2)]
    many = [Gap(after=number, before=number + 1, missing=1) for number in range(1000)]
    assert len(joined(many)) == MAX_GAPS
    assert joined(many)[-1] == Gap(after=MAX_GAPS - 1, before=1000, missing=1000 - MAX_GAPS + 1)


async def test_without_a_journal_what_is_missing_is_said(host: Host) -> None:
    host.say((7, 100.0, "usb 1-1: new device"))
    await host.read()
    assert host.faults == {"KernelLogGap"}
    assert "7 records" in host.evidence
    assert "no journalctl" in host.evidence
    assert host.monitoring() is ConditionStatus.UNKNOWN
    assert host.looked  # It is read on; only what is missing stays unknown.

    host.events.report()
    await host.again()
    await host.read()
    assert host.faults == set()  # It was said, and is not said again by each agent that begins.


async def test_what_the_ring_lost_is_read_from_the_journal(host: Host) -> None:
    host.journal((0.0, "Linux version 6.8.0"), (50.0, LOST), (100.0, "usb 1-1: new device"))
    host.say((7, 100.0, "usb 1-1: new device"))
    await host.read()
    assert host.faults == {"GpuFallenOffBus"}
    (finding,) = host.assessment.findings
    assert finding.last_seen == BOOTED + 50.0
    assert host.asked == [f"-k -o json --boot={BOOT_ID.replace('-', '')} --no-pager --quiet"]


async def test_until_the_journal_has_answered_the_log_counts_as_not_read(host: Host) -> None:
    host.journal(then="sleep 0.3; exit 1")
    host.say((7, 100.0, "usb 1-1: new device"))
    host.events.tail.start()
    await host.events.tail.caught_up.wait()
    host.events.report()
    host.events.report()
    assert not host.looked
    await host.read()
    assert host.looked
    assert host.faults == {"KernelLogGap"}


async def test_only_what_lies_in_the_gap_is_taken_from_the_journal(host: Host) -> None:
    read = "NVRM: Xid (PCI:0000:06:00): 79, pid=1, name=a, GPU has fallen off the bus."
    host.say((0, 1.0, "Linux version 6.8.0"), (1, 40.0, read), (5, 100.0, "usb 1-1: new device"))
    host.journal((1.0, "Linux version 6.8.0"), (40.0, read), (50.0, LOST), (100.0, "x"), (200.0, LOST))
    await host.read()
    counts = {one.component: one.count for one in host.assessment.findings}
    assert counts == {"gpu/pci-0000:05:00": 1, "gpu/pci-0000:06:00": 1}


async def test_a_journal_that_has_lost_it_too_is_read_and_the_gap_still_said(host: Host) -> None:
    host.journal((50.0, LOST), (100.0, "x"))
    host.say((7, 100.0, "x"))
    await host.read()
    assert host.faults == {"GpuFallenOffBus", "KernelLogGap"}
    assert "begins 50 s after the boot" in host.evidence


async def test_a_journal_that_lags_is_asked_again_and_not_for_ever(host: Host) -> None:
    host.journal((0.0, "Linux version 6.8.0"), (50.0, "x"))
    host.say((7, 100.0, "x"))
    await host.read()
    assert len(host.asked) == kernel_events.JOURNAL_TRIES
    assert "lags" in host.evidence


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("exit 1", "exit code 1"),
        ("echo garbage", "no kernel lines"),
        ("kill -SEGV $$", "exit code -11"),
        ("yes '{\"MESSAGE\": 1}'", "more than is read"),
    ],
)
async def test_a_journal_that_does_not_answer_leaves_the_gap(host: Host, then: str, words: str) -> None:
    host.journal(then=then)
    host.say((7, 100.0, "x"))
    await host.read()
    assert host.faults == {"KernelLogGap"}
    assert words in host.evidence


async def test_what_user_space_wrote_into_the_journal_says_nothing(host: Host) -> None:
    host.journal((0.0, "x"), (50.0, LOST), (100.0, "x"), facility="1")
    host.say((7, 100.0, "x"))
    await host.read()
    assert host.faults == set()


async def test_a_flood_in_the_journal_comes_bounded(host: Host) -> None:
    entries = [(1.0 + number / 1000, f"{LOST} {number}") for number in range(5000)]
    host.journal((0.0, "x"), *entries, (100.0, "x"))
    host.say((7, 100.0, "x"))
    await host.read()
    assert host.faults == {"GpuFallenOffBus", "KernelLogGap"}
    assert "more than is read" in host.evidence


async def test_an_agent_that_begins_anew_asks_only_for_what_nobody_judged(host: Host) -> None:
    host.say((0, 1.0, "Linux version 6.8.0"), (1, 50.0, LOST))
    await host.read()
    host.events.report()
    host.kmsg.write_text("")
    host.say((1, 50.0, LOST))  # The ring has lost its beginning, which was judged.
    host.journal((0.0, LOST), (100.0, "x"))
    await host.again()
    await host.read()
    assert host.faults == set()
    assert host.asked == []

    host.kmsg.write_text("")
    host.say((9, 100.0, "x"))  # Now it has lost more than was judged.
    host.journal((0.0, "x"), (20.0, LOST), (50.0, LOST), (60.0, LOST.replace("05", "06")), (100.0, "x"))
    await host.again()
    await host.read()
    assert {one.component for one in host.assessment.findings} == {"gpu/pci-0000:06:00"}


async def test_an_agent_that_ends_while_the_journal_is_asked_asks_again(host: Host) -> None:
    host.journal(then="sleep 600")
    host.say((7, 100.0, LOST))
    host.events.tail.start()
    await host.events.tail.caught_up.wait()
    host.events.report()
    assert not (host.root / "position.json").exists()
    host.journal((0.0, "x"), (50.0, LOST.replace("05", "06")), (100.0, "x"))
    await host.again()
    await host.read()
    assert {one.component for one in host.assessment.findings} == {"gpu/pci-0000:05:00", "gpu/pci-0000:06:00"}


async def test_records_that_the_device_overwrote_are_a_gap(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPIPE is what ``/dev/kmsg`` answers to a reader that was overtaken; what follows has a later number."""
    first = b"6,0,1,-;Linux version 6.8.0\n"
    answers: list[bytes | OSError] = [first, BrokenPipeError(), b"6,9,90000000,-;nine\n", BlockingIOError()]

    def read(_fd: int, _size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    host.journal((0.0, "x"), (50.0, LOST), (100.0, "x"))
    host.events.tail._fd = os.open(os.devnull, os.O_RDONLY)
    host.events.tail.failure = ""
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read)
        host.events.tail._read_device()
    host.events.report()
    async with asyncio.timeout(10):
        while host.events._missing:
            await asyncio.sleep(0.01)
    assert host.faults == {"GpuFallenOffBus"}
    assert host.events.missing == 8


@pytest.mark.root
async def test_a_host_that_is_a_whole_system_is_entered(host: Host) -> None:
    """Its journalctl sees that host and not the agent's image: here it finds no interpreter, so it is inside."""
    host.journal((0.0, "x"), (50.0, LOST), (100.0, "x"))
    (host.root / "bin").mkdir()
    (host.root / "bin/sh").write_text("not a shell")
    host.say((7, 100.0, "x"))
    await host.read()
    assert host.faults == {"KernelLogGap"}
    assert host.asked == []


# --- clocks ----------------------------------------------------------------------------------------------------------


async def test_a_clock_that_is_set_back_hides_no_line_of_this_boot(host: Host) -> None:
    host.say((0, 9_000.0, LOST))
    await host.read()
    host.now -= 3600.0
    host.events.report()
    host.say((1, 9_001.0, LOST.replace("05", "06")))
    await host.read()
    assert len(host.assessment.findings) == 2
    host.events.report()

    await host.again(booted_at=BOOTED - 3600.0)  # What the kernel tells of its boot moved with the clock.
    host.say((2, 9_002.0, LOST.replace("05", "07")))
    await host.read()
    assert {one.component for one in host.assessment.findings} == {"gpu/pci-0000:07:00"}


async def test_a_clock_that_is_set_forward_lets_no_line_of_now_age_out(host: Host) -> None:
    host.say((0, 9_000.0, "x"))
    await host.read()
    host.now += 400 * 86_400.0
    host.uptime += 1.0
    host.events.report()
    host.assessment.take(Tick(now=host.now))
    crash(host, 1, 100, PODS[0])
    await host.read()
    assert len(host.assessment.findings) == 1
    host.events.report()

    await host.again(booted_at=BOOTED + 400 * 86_400.0)
    await host.read()
    assert host.faults == set()  # It was judged, whatever the clock was then.


async def test_a_disk_that_is_full_costs_the_position_and_nothing_else(host: Host) -> None:
    host.say((0, 9_000.0, LOST))
    (host.root / "position.new").symlink_to("/dev/full")
    await host.read()
    assert host.faults == {"GpuFallenOffBus"}
    assert not (host.root / "position.json").exists()
    assert stat.S_ISCHR((host.root / "position.new").stat().st_mode)


async def test_following_goes_on_whatever_the_journal_does(host: Host) -> None:
    host.journal(then="sleep 600")
    host.say((7, 100.0, "x"))
    host.events.tail.start()
    await host.events.tail.caught_up.wait()
    host.events.report()
    started = time.monotonic()
    host.say((8, 101.0, LOST))
    async with asyncio.timeout(5):
        while not host.faults:
            await asyncio.sleep(0.005)
    assert time.monotonic() - started < 2
    await host.events.close()


async def test_the_same_line_again_wakes_nobody(tmp_path: Path) -> None:
    boot = Boot(boot_id=BootId("b"), booted_at=0.0, serial="s", instance_type="", driver_branch=575)
    changes: list[int] = []
    assessment = Assessment(boot, MachineMemory(serial="s"), Expected(), on_change=lambda: changes.append(1))
    log = tmp_path / "dev" / "kmsg"
    log.parent.mkdir()
    log.write_text("3,0,1,-;NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.\n")
    events = KernelEvents(log, tmp_path / "position.json", assessment)
    events.tail.start()
    told = len(changes)
    assert told
    with log.open("a") as file:
        file.write("3,1,2,-;NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.\n")
    async with asyncio.timeout(5):
        while sum(one.count for one in assessment.findings) < 2:
            await asyncio.sleep(0.01)
    assert len(changes) == told
    assessment.tick()
    assert len(changes) == told + 1
    await events.close()
