"""Shows a pod's processes in its node's process filesystem, as far as an agent looks there.

On a real node ``/proc/PID/cgroup`` says which pod a process belongs to. A process of the lab is in no such cgroup, so
its node's tree gets the two files that the kernel and the kubelet would show: where it is, and since when.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from fleetwell.kube.objects import Pod
from fleetwell.lab.sysfs import put

_CLASSES = {"Burstable": "burstable-", "BestEffort": "besteffort-"}


def show(root: Path, pod: Pod, container: str, pid: int, booted_at: float, *, now: float | None = None) -> None:
    """Show that a process of this pod has begun.

    :param root: the node's host tree.
    :param container: the container's id.
    :param booted_at: when the node booted, in seconds since the epoch: the kernel counts from there.
    """
    prefix = f"kubepods-{_CLASSES.get(pod.status.qos_class, '')}"
    scope = f"{prefix}pod{pod.metadata.uid.replace('-', '_')}.slice/cri-containerd-{container}.scope"
    parent = f"{prefix.removesuffix('-')}.slice/" if prefix != "kubepods-" else ""
    since = max(0.0, (time.time() if now is None else now) - booted_at)
    ticks = int(since * os.sysconf("SC_CLK_TCK"))
    put(root / f"proc/{pid}/cgroup", f"0::/kubepods.slice/{parent}{scope}")
    put(root / f"proc/{pid}/stat", f"{pid} (container) S 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0")


def hide(root: Path, pid: int) -> None:
    """Take it away when the process has ended."""
    shutil.rmtree(root / f"proc/{pid}", ignore_errors=True)
