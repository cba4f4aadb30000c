"""What NVML tells the proof about a GPU: who uses it, whether it is cut into instances, and its heat and clocks."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetwell.probes.driver import library
from fleetwell.probes.nvml_binding import pynvml
from fleetwell.probes.proof_device import Vitals
from fleetwell.probes.proof_time import Time

PATIENCE = 5.0
"""Seconds in which a worker that has ended is gone from NVML's list of processes."""
PAUSE = 0.25


def opened(host_root: Path) -> bool:
    """Open NVML with the driver's own library; say whether there is one. The process's end shuts it down.

    :raises OSError: the library cannot be loaded.
    :raises pynvml.NVMLError: it cannot be asked.
    """
    path = library(host_root)
    if path is None:
        return False
    # Loaded for all: NCCL asks for it by name, and would search the image's own paths.
    pynvml.nvmlLib = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    pynvml.nvmlInit()
    return True


def handle(uuid: str) -> Any:
    """Give NVML's handle of a GPU."""
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def why_not(gpu: Any, idle_memory_mib: int, proof: int) -> str:
    """Say why a GPU must not be used for a proof; empty where it may.

    The processes of this proof itself do not count. What NVML cannot tell is a reason: a GPU is not taken on a guess.

    :param proof: process id of the proof, whose workers are its children.
    """
    try:
        if _cut(gpu):
            return "MIG is on: a proof of the whole GPU cannot be run"
        others = sorted({pid for pid in _pids(gpu) if not ours(pid, proof)})
        mine = any(ours(pid, proof) for pid in _pids(gpu))
        used = int(pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2).used) >> 20
    except pynvml.NVMLError as error:
        return f"NVML does not tell who uses it: {error}"
    if others:
        return f"in use by pid {', '.join(map(str, others[:4]))}: not disturbed"
    if used > idle_memory_mib and not mine:
        return f"{used} MiB are in use by a process that does not show: not disturbed"
    return ""


def why_not_yet(
    gpu: Any, idle_memory_mib: int, proof: int, patience: Time, pause: Callable[[float], None] = time.sleep
) -> str:
    """Say the same after some patience: a worker of the stage before may take a moment to be gone from NVML's list."""
    while (why := why_not(gpu, idle_memory_mib, proof)) and not patience.over():
        pause(PAUSE)
    return why


def _cut(gpu: Any) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(gpu)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
            return False
        raise
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _pids(gpu: Any) -> Iterator[int]:
    yield from (process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu))
    try:
        yield from (process.pid for process in pynvml.nvmlDeviceGetGraphicsRunningProcesses(gpu))
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
            raise


def ours(pid: int, proof: int) -> bool:
    """Whether a process is the proof or was started by it.

    A session or a process group does not tell: started by hand, the proof shares them with whatever the same shell or
    script has started, and in a container with everything in it.
    """
    if pid == os.getpid():
        return True
    while pid > 1 and pid != proof:
        pid = _parent(pid)
    return pid == proof


def _parent(pid: int) -> int:
    """Give a process's parent, 0 where it is gone or not ours to see."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2]
        return int(after_name.split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def vitals(gpu: Any) -> Vitals:
    """Read heat and clocks now."""
    slowdown = _told(lambda: pynvml.nvmlDeviceGetTemperatureThreshold(gpu, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN))
    return Vitals(
        celsius=_told(lambda: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)),
        slowdown_celsius=slowdown or None,
        clock_mhz=_told(lambda: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
        reasons=_told(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
    )


def _told(ask: Callable[[], int]) -> int | None:
    try:
        return ask()
    except pynvml.NVMLError:
        return None
