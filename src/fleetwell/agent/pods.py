"""Tells which pod a process belongs to, by the cgroup that the kubelet put it into.

The kernel names processes, and a job that crashes again and again has a new one each time: only pods can tell whether
*different* jobs had the same fault on the same GPU. What stands below a pod's cgroup a container may name as it likes,
so the outermost pod of a path is taken, and only below the kubelet's own cgroup.
"""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fleetwell.health.bursts import REPETITION_BY_UNIT
from fleetwell.health.vocabulary import Observation

READ_LIMIT = 16 * 1024
"""Bytes of a cgroup file: version 1 has some fifteen lines, each with a path of at most 4 KiB and usually 200 bytes."""
KEPT = 1024
KEPT_FOR = 60.0
"""Seconds for which a process that is gone is still known: its later lines come within seconds of the first one."""
LOOKUPS = 64
"""Processes that are looked up for one batch of lines: a flood of lines must not become one of reads."""
SLACK = 1.0
"""Seconds by which a process may seem to have started after its line: the boot time is known to the second only."""
NOBODY = ""
"""Owner of what cannot be told: it counts for nobody."""

_TICKS = os.sysconf("SC_CLK_TCK")
_POD = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=$|\.slice|:)")
"""Plain, or with what systemd puts around it; a static pod has a hash for its UID."""


def pod_of(proc: Path, pid: int) -> str | None:
    """Give the UID of the pod of a process; empty where it is in none.

    Both versions of cgroups and both of the kubelet's drivers are read, whichever runtime (containerd, CRI-O) it is.
    None where the process is gone, or not ours to see.
    """
    text = _read(proc / str(pid) / "cgroup")
    if text is None:
        return None
    for line in text.splitlines():
        pod = _pod_in(line.split(":", 2)[-1])  # hierarchy:controllers:path
        if pod:
            return pod
    return ""


def _pod_in(path: str) -> str:
    segments = path.removesuffix(" (deleted)").strip("/").split("/")
    # In a cgroup namespace of its own the agent sees the others from its own place: what is above that has no name.
    below = segments[0] == ".."
    for segment in segments:
        below = below or "kubepods" in segment
        match = _POD.search(segment) if below else None
        if match is not None:
            return match.group(1).replace("_", "-")
    return ""


class Owners:
    """Finds the owners of the processes that kernel lines name, when the lines are seen.

    :param proc: the host's process filesystem.
    :param booted_at: gives the kernel's time zero in seconds since the epoch, as the lines' times are counted.
    """

    def __init__(
        self, proc: Path, booted_at: Callable[[], float], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc = proc
        self._booted_at = booted_at
        self._monotonic = monotonic
        self._known: OrderedDict[int, tuple[str, float]] = OrderedDict()

    def of(self, seen: Iterable[Observation]) -> Mapping[int, str]:
        """Give the owners of the processes whose faults count by owner.

        A process that is in no pod is its own unit's (``/system.slice/…``). One that is gone, or whose number somebody
        else has by now, is nobody's: it may be another crash of a pod that was counted.
        """
        lines: dict[int, float] = {}
        for one in seen:
            if one.pid is not None and one.xid in REPETITION_BY_UNIT:
                lines.setdefault(one.pid, one.at)
        owners = {}
        for number, (pid, at) in enumerate(lines.items()):
            owners[pid] = self._owner(pid, at) if number < LOOKUPS else NOBODY
        return owners

    def _owner(self, pid: int, at: float) -> str:
        now = self._monotonic()
        owner = self._look(pid, at)
        if owner is None:
            known, since = self._known.get(pid, (NOBODY, now))
            return known if now - since <= KEPT_FOR else NOBODY
        self._known.pop(pid, None)
        self._known[pid] = (owner, now)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return owner

    def _look(self, pid: int, at: float) -> str | None:
        pod = pod_of(self._proc, pid)
        if pod is None or self._started(pid) > at + SLACK:
            return None
        return f"pod {pod}" if pod else self._unit(pid)

    def _started(self, pid: int) -> float:
        """Give when it started; endless where that cannot be read, since it is gone then."""
        stat = _read(self._proc / str(pid) / "stat") or ""
        fields = stat.rpartition(")")[2].split()  # The name before it may hold anything.
        if len(fields) < 20 or not fields[19].isdigit():
            return float("inf")
        return self._booted_at() + int(fields[19]) / _TICKS

    def _unit(self, pid: int) -> str | None:
        """Name what is not of Kubernetes by its cgroup: a service that crashes again and again is one owner, too."""
        text = _read(self._proc / str(pid) / "cgroup")
        if not text:
            return None
        return f"cgroup {text.splitlines()[-1].split(':', 2)[-1][:256]}"


def _read(path: Path) -> str | None:
    """Read the beginning of a file of the process filesystem; neither of those two waits for the process."""
    try:
        with path.open("rb") as file:
            return file.read(READ_LIMIT).decode(errors="replace")
    except (OSError, ValueError):
        return None
