"""The child that asks NVML everything that one cycle wants to know, and then shuts it down again.

It holds no device between cycles, so a reset, a change of MIG or an unload of the driver is never blocked by it. A GPU
that does not answer is reported and the others are still judged.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

from fleetwell.probes import report
from fleetwell.probes.driver import LIBRARY, library
from fleetwell.probes.nvml_binding import GONE, Gpu, pynvml
from fleetwell.probes.nvml_questions import Round
from fleetwell.probes.nvml_samples import Samples
from fleetwell.probes.report import Report

PROBE = "nvml"
BOOT_ID = "proc/sys/kernel/random/boot_id"

_NOT_THERE = {pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}


def main() -> None:
    """Look once."""
    given = report.settings()
    host_root = Path(str(given.get("host_root", "/")))
    expected = given.get("expected")
    known = {str(uuid): str(pci) for uuid, pci in dict(given.get("known") or {}).items()}  # type: ignore[call-overload]  # JSON from the agent
    kept = given.get("nvml_memory")
    samples = Samples(
        Path(str(kept)) if kept else None,
        str(given.get("serial", "")),
        _boot(host_root),
        time.clock_gettime(time.CLOCK_BOOTTIME),
    )
    report.leave(look(host_root, expected if isinstance(expected, int) else None, known, samples))


def look(host_root: Path, expected: int | None, known: dict[str, str], samples: Samples | None = None) -> Report:
    """Ask NVML.

    :param expected: how many GPUs the machine must have, where that is known.
    :param known: UUID → PCI address of the GPUs that this machine was seen to have.
    :param samples: what the look before counted; without it this one shows no rates.
    """
    seen = Report(PROBE)
    path = library(host_root)
    if path is None:
        seen.absent(f"no {LIBRARY} in any driver root below {host_root}")
        return seen
    try:
        # The binding takes the library that is already there; by itself it would search the image's own paths.
        pynvml.nvmlLib = ctypes.CDLL(str(path))
        pynvml.nvmlInit()
    except OSError as error:
        seen.absent(f"{path} cannot be loaded: {error}")
        return seen
    except pynvml.NVMLError as error:
        _no_init(seen, error, required=bool(expected or known))
        return seen
    try:
        _ask(seen, expected, known, samples or Samples(None, "", "", 0.0))
    finally:
        pynvml.nvmlShutdown()
    return seen


def _no_init(seen: Report, error: pynvml.NVMLError, *, required: bool) -> None:
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        seen.fault("DriverLibraryMismatch", "host", f"nvmlInit: {error}")
        # Not the hardware's fault, but nobody can say now whether the hardware has one.
        seen.fault("ProbeSilent", "host", "NVML answers nothing until its library and the driver agree")
    elif error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
        seen.fault("GpuLost", "host", f"nvmlInit: {error}")
    elif error.value not in _NOT_THERE:
        raise error
    elif required:
        seen.fault("DriverNotLoaded", "host", f"nvmlInit: {error}")
    else:
        seen.absent(f"nvmlInit: {error}")


def _ask(seen: Report, expected: int | None, known: dict[str, str], samples: Samples) -> None:
    count = int(pynvml.nvmlDeviceGetCount())
    handles: dict[str, Gpu] = {}
    failed: list[tuple[int, pynvml.NVMLError]] = []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            pci = address(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
        except pynvml.NVMLError as error:
            failed.append((index, error))
        else:
            handles[uuid] = Gpu(uuid, _optional(pynvml.nvmlDeviceGetName, handle), handle)
            seen.gpu(uuid, pci, _optional(pynvml.nvmlDeviceGetSerial, handle), handles[uuid].name)
    named = _name_the_silent(seen, {uuid: pci for uuid, pci in known.items() if uuid not in handles})
    for index, cause in failed[len(named) :]:
        said = f"no handle for GPU {index}: {cause} (NVML {cause.value}); which GPU it is cannot be told"
        seen.fault(GONE.get(cause.value, "GpuHandleError"), "host", said)
    seen.covers("host", *(f"gpu/{uuid}" for uuid in handles))
    missing = [uuid for uuid in known if uuid not in handles and uuid not in named]
    _count(seen, expected, answered=len(handles), listed=count, missing=missing)
    Round(seen, list(handles.values()), samples).judge()


def _name_the_silent(seen: Report, silent: dict[str, str]) -> set[str]:
    """Tell which of the known GPUs gave no handle, by asking for them by address; what is not listed is left."""
    named = set()
    for uuid, pci in silent.items():
        try:
            pynvml.nvmlDeviceGetHandleByPciBusId(pci)
        except pynvml.NVMLError as error:
            if error.value in {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT}:
                continue
            fault = GONE.get(error.value, "GpuHandleError")
            seen.fault(fault, f"gpu/{uuid}", f"no handle for the GPU at {pci}: {error} (NVML {error.value})")
            named.add(uuid)
    return named


def _count(seen: Report, expected: int | None, *, answered: int, listed: int, missing: list[str]) -> None:
    if expected is None or listed >= expected:
        seen.covers(*(f"gpu/{uuid}" for uuid in missing))  # Whatever hardware was there before, the count is right.
        return
    said = f"NVML lists {listed} GPUs ({answered} answer) of the {expected} that this machine must have"
    if len(missing) == expected - listed:
        for uuid in missing:
            seen.fault("GpuMissing", f"gpu/{uuid}", f"{said}; {uuid} is not among them")
    else:
        seen.fault("GpuMissing", "host", said)


def address(bus_id: str) -> str:
    """Write NVML's ``00000000:53:00.0`` as sysfs does: ``0000:53:00.0``; what has another form is left as it is."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}"
    except ValueError:
        return bus_id.lower()


def _boot(host_root: Path) -> str:
    try:
        return (host_root / BOOT_ID).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _optional(ask: Any, handle: Any) -> str:
    try:
        return _text(ask(handle))
    except pynvml.NVMLError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
