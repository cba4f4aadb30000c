"""A flood that comes live, and faults in it that the agent's conditions must say in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import structlog

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import Boot
from fleetwell.agent.kernel_events import KernelEvents
from fleetwell.health.catalogue import for_xid
from fleetwell.health.vocabulary import BootId, ConditionStatus, gpu
from fleetwell.probes.inventory import Expected, MachineMemory
from flood_kinds import mixed

LINES = 800_000
RATE = 50_000
"""Lines a second, so that the whole flood takes 16 seconds."""
SLICE = 500
"""Lines of one write."""
GPUS = {f"GPU-{bus:02x}": f"0000:{0x10 + bus:02x}:00" for bus in range(16)}
FAULTS = (62, 79, 109, 110, 119, 120, 142, 151, 156)
"""Codes each of which is a fault of its own, and no part of another one's burst."""
MARKS = [(uuid, code) for code in FAULTS for uuid in GPUS]
TROUBLE = "GPU is in trouble"
GIVE_UP_SECONDS = 20.0


def line(number: int, text: str) -> str:
    """Give a record of the kernel's device; its clock goes as the lines come."""
    priority, _, said = text.partition(",")
    return f"{priority},{number},{number * 1_000_000 // RATE},-;{said}\n"


def slices() -> list[bytes]:
    """Give the flood, cut into writes; at even distances a fault ends one."""
    every = LINES // SLICE // len(MARKS)
    marks = iter(MARKS)
    cut = []
    for first in range(0, LINES, SLICE):
        lines = [mixed(number) for number in range(first, first + SLICE)]
        if first // SLICE % every == every - 1 and (mark := next(marks, None)) is not None:
            lines[-1] = f"3,NVRM: Xid (PCI:{GPUS[mark[0]]}): {mark[1]}, {TROUBLE}"
        cut.append("".join(line(first + at, text) for at, text in enumerate(lines)).encode())
    return cut


def write(log: str, begin: Any, written: Any) -> None:
    """Write the flood at its rate; tell when each fault was written, by the monotonic clock."""
    cut, times = slices(), []
    begin.wait()
    began = time.monotonic()
    with Path(log).open("ab", buffering=0) as file:
        for at, lines in enumerate(cut):
            time.sleep(max(0.0, began + at * SLICE / RATE - time.monotonic()))
            if TROUBLE.encode() in lines:
                times.append(time.monotonic())
            file.write(lines)
    written.put(times)


class Ear:
    """Notes when each fault first stood in the conditions."""

    def __init__(self) -> None:
        boot = Boot(boot_id=BootId("boot"), booted_at=0.0, serial="s", instance_type="", driver_branch=575)
        memory = MachineMemory(serial="s", gpus=dict(GPUS))
        self.assessment = Assessment(boot, memory, Expected(), on_change=self._changed)
        self.heard: dict[tuple[str, int], float] = {}
        self.all = asyncio.Event()
        self._waits = {(for_xid(code).fault, gpu(uuid)): (uuid, code) for uuid, code in MARKS}

    def _changed(self) -> None:
        conditions = self.assessment.conditions()
        now = time.monotonic()
        if all(one.status is ConditionStatus.TRUE for one in conditions):
            return
        for finding in self.assessment.findings:
            mark = self._waits.pop((finding.fault, finding.component), None)
            if mark is not None:
                self.heard[mark] = now
        if not self._waits:
            self.all.set()


def _waited() -> float:
    """Give the seconds for which this thread waited for a processor that others had."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def live() -> dict[str, float]:
    """Have the flood come; give the time until conditions say a fault, the faults unheard, and the processor time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    spawn = multiprocessing.get_context("spawn")
    begin, written = spawn.Event(), spawn.Queue()
    with tempfile.TemporaryDirectory(prefix="fleetwell-bench-") as folder:
        log = Path(folder, "kmsg")
        log.touch()
        writer = spawn.Process(target=write, args=(str(log), begin, written))
        writer.start()
        ear = Ear()
        events = KernelEvents(log, Path(folder, "position.json"), ear.assessment)
        events.name_devices()

        async def listen() -> None:
            events.tail.start()
            begin.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINES / RATE + GIVE_UP_SECONDS):
                    await ear.all.wait()
            await events.close()

        before, waited = resource.getrusage(resource.RUSAGE_SELF), _waited()
        asyncio.run(listen())
        after = resource.getrusage(resource.RUSAGE_SELF)
        times = dict(zip(MARKS, written.get(timeout=GIVE_UP_SECONDS), strict=True))
        writer.join()
    took = sorted(ear.heard[mark] - at for mark, at in times.items() if mark in ear.heard)
    return {
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "condition_p99_ms": took[int(len(took) * 0.99)] * 1000 if took else float("inf"),
        "condition_most_ms": took[-1] * 1000 if took else float("inf"),
        "waited_s": _waited() - waited,
        "unheard": len(MARKS) - len(took),
    }
