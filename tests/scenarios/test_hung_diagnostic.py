"""S34: a diagnostic that hangs is not waited for, though nothing can end it; the agent looks on with its other eyes.

A probe that is waited on for ever was the goal that started this. The hang is real: the NVML child
sleeps in a call, and where root allows it, on a frozen filesystem in state D, where not even SIGKILL ends it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from fleetwell.api.node_health import NodeFinding
from scenarios.field import Field

pytestmark = pytest.mark.controlplane

NODES = 2
CONTROLLER = False
INTERVAL, DEADLINE = 2.0, 2.0
AGENT_ARGUMENTS = ("--nvml-interval", f"{INTERVAL:g}s", "--nvml-deadline", f"{DEADLINE:g}s", "--boot-grace", "2s")
CYCLES = 4


@dataclass(frozen=True)
class Load:
    """What a process holds, as the kernel counts it."""

    rss_kib: int
    threads: int
    files: int


class Agent:
    """A node's agent, seen from outside."""

    def __init__(self, field: Field, node: str) -> None:
        marks = (b"\0agent\0", str(field.lab.site.node(node).host).encode() + b"\0")
        found = [pid for pid in _processes() if all(mark in _command(pid) for mark in marks)]
        assert len(found) == 1, f"agents of {node}: {found}"
        self.pid = found[0]

    def diagnostics(self) -> frozenset[int]:
        """Process numbers of its NVML children that are there, in whatever state but dead."""
        children = (pid for pid in _processes() if _status(pid).get("PPid") == str(self.pid))
        return frozenset(pid for pid in children if b"fleetwell.probes.nvml\0" in _command(pid))

    def load(self) -> Load:
        status = _status(self.pid)
        files = len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
        return Load(int(status["VmRSS"].split()[0]), int(status["Threads"]), files)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()  # empty for a zombie
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def findings(field: Field, node: str, fault: str) -> list[NodeFinding]:
    return [one for one in (await field.health(node)).status.findings if one.fault == fault]


async def condition_is(field: Field, node: str, kind: str, status: str) -> bool:
    condition = await field.condition(node, kind)
    return condition is not None and condition.status == status


async def verdict_in_time(field: Field, node: str) -> None:
    """From a hang to the verdict, whatever the child does: one interval, one deadline, and a second for all else."""
    hung = partial(findings, field, node, "ProbeHung")
    await field.until("the hang is told", hung, INTERVAL * 1.1 + DEADLINE + 1.0)
    assert (await field.health(node)).status.verdict == "UNKNOWN"
    assert await condition_is(field, node, "MonitoringHealthy", "Unknown")


async def recovers(field: Field, node: str) -> None:
    """The next look after the release is good, and what it says is taken."""

    async def no_longer_hung() -> bool:
        return not await findings(field, node, "ProbeHung")

    await field.until("the hang is over", no_longer_hung, 10.0)
    await field.until("monitoring is healthy", partial(condition_is, field, node, "MonitoringHealthy", "True"), 5.0)


async def test_s34_a_hung_diagnostic_is_unknown_by_its_deadline_and_recovers(field: Field) -> None:
    agent = Agent(field, "gpu-1")
    await field.inject("nvml-hang", "gpu-1")
    await verdict_in_time(field, "gpu-1")
    await field.inject("clear", "gpu-1")
    await recovers(field, "gpu-1")
    assert (await field.health("gpu-1")).status.verdict == "OK"

    async def no_child() -> bool:
        return not agent.diagnostics()

    await field.until("no child is left over", no_child, 5.0)


@pytest.mark.root
async def test_s34_nothing_waits_for_a_child_that_cannot_be_killed(field: Field) -> None:
    """One child in state D over several cycles: no second one, nothing piles up, and the kernel log is still read."""
    node = "gpu-2"
    agent = Agent(field, node)
    await field.inject("nvml-hang-unkillable", node)
    await verdict_in_time(field, node)

    async def outstanding() -> frozenset[int]:
        return agent.diagnostics()

    (stuck,) = await field.until("the child hangs", outstanding, 5.0)
    assert _status(stuck)["State"].startswith("D"), "the child is not beyond SIGKILL, so this shows nothing"

    before = agent.load()
    await field.inject("gpu-lost", node, 5)
    lost = partial(findings, field, node, "GpuFallenOffBus")
    await field.until("another GPU's fault is told while the child hangs", lost, 2.0)
    assert await condition_is(field, node, "GPUHealthy", "False")

    loop = asyncio.get_running_loop()
    until, seen = loop.time() + CYCLES * INTERVAL, set[int]()
    while loop.time() < until:  # several cycles, in each of which a second child could be started
        seen |= agent.diagnostics()
        await asyncio.sleep(0.02)
    assert seen == {stuck}, "more children were started beside the one that hangs"
    after = agent.load()
    assert after.threads <= before.threads
    assert after.files <= before.files + 1, "descriptors pile up"
    assert after.rss_kib <= before.rss_kib + 1024, "memory piles up"
    assert await findings(field, node, "ProbeHung")

    await field.inject("clear", node)
    await recovers(field, node)

    async def child_gone() -> bool:
        return stuck not in agent.diagnostics()

    await field.until("the child is gone", child_gone, 5.0)
    assert await lost(), "what the kernel log said is forgotten with the hang"
