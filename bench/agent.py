"""What an agent costs its node: memory of its process, CPU of it and of all its children, on eight GPUs.

``make bench-agent``: a lab of one node whose agent has the intervals that it has in a cluster, left alone for ten
minutes. Memory is the resident set of the agent's own process, the largest of one sample a second. CPU is read from
``/proc/PID/stat`` at both ends, with the time of the children that it has reaped: that is every probe but the one that
runs at the moment.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from fleetwell.lab.host import Settings
from fleetwell.lab.laboratory import Laboratory
from fleetwell.lab.site import Site

MINUTES = 10.0
GOAL = {"rss_mib": 45.0, "cpu_millicores": 5.0}
DEFAULT_TIMES = (
    *("--nvml-interval", "30s", "--nvml-deadline", "15s", "--sysfs-interval", "1m", "--sysfs-deadline", "10s"),
    *("--boot-grace", "1m", "--heartbeat", "1m"),
)
"""The agent's own defaults again: a lab's agents look more often, for who watches them."""
SETTLE_SECONDS = 30.0
"""Between the agent's first word and the measurement, so that its start is not counted as its idling."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What a process has used so far, in seconds of CPU, and holds now, in MiB."""

    own: float
    children: float
    rss: float

    @classmethod
    def of(cls, pid: int) -> Cost:
        """Read it from /proc."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user, system, children_user, children_system = (int(field) / _TICKS for field in fields[11:15])
        pages = int(fields[21])
        return cls(user + system, children_user + children_system, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def agent_process(root: Path) -> int:
    """Find the agent of the lab below ``root``."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[1:4] == [b"-m", b"fleetwell", b"agent"] and any(os.fsencode(root) in word for word in words):
                return int(folder.name)
    raise RuntimeError(f"no agent of the lab in {root} runs")


def measure(pid: int, seconds: float, console: Console) -> tuple[Cost, Cost, float, float]:
    """Watch for so long; give the cost at both ends, the largest memory, and the seconds that really went by."""
    time.sleep(SETTLE_SECONDS)
    before, began = Cost.of(pid), time.monotonic()
    largest = before.rss
    with console.status(f"the agent is left alone for {seconds / 60:g} min"):
        while time.monotonic() - began < seconds:
            time.sleep(1.0)
            largest = max(largest, Cost.of(pid).rss)
    return before, Cost.of(pid), largest, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long it is watched (default: %(default)g)")
    parser.add_argument("--machine", default="p5.48xlarge", help="a machine of the lab (default: %(default)s)")
    given = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="fleetwell-bench-", ignore_cleanup_errors=True) as folder:
        laboratory = Laboratory(Site(Path(folder)), tied=True, progress=lambda line: console.print(line, style="dim"))
        try:
            laboratory.up(Settings(machine=given.machine, nodes=1), controller=False, agent_arguments=DEFAULT_TIMES)
            before, after, largest, seconds = measure(agent_process(Path(folder)), given.minutes * 60, console)
        finally:
            with contextlib.suppress(KeyboardInterrupt):
                laboratory.down()
    own = (after.own - before.own) / seconds * 1000
    children = (after.children - before.children) / seconds * 1000
    table = Table(title=f"one agent, {given.machine}, {seconds / 60:.1f} min with default intervals")
    for column in ("", "measured", "goal"):
        table.add_column(column, justify="right")
    table.add_row("resident memory of the agent, MiB", f"{largest:.1f}", f"{GOAL['rss_mib']:g}")
    table.add_row("CPU of the agent itself, millicores", f"{own:.2f}", "")
    table.add_row("CPU of its children, millicores", f"{children:.2f}", "")
    table.add_row("CPU together, millicores", f"{own + children:.2f}", f"{GOAL['cpu_millicores']:g}")
    Console().print(table)
    figures = {"rss_mib": round(largest, 1), "cpu_millicores": round(own + children, 2)}
    met = all(figures[name] <= goal for name, goal in GOAL.items())
    print(msgspec.json.encode({"bench": "agent", "figures": figures, "goal": GOAL, "met": met}).decode())
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
