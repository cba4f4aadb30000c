"""The child that asks NVML everything that one cycle wants to know, and then shuts it down again.

It holds no device between cycles, so a reset, a change of MIG or an unload of the driver is never blocked by it. A GPU
that does not answer is reported and the others are still judged.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pynvml

from fleetwell.probes import nvml_questions, report
from fleetwell.probes.driver import LIBRARY, library
from fleetwell.probes.report import Report

PROBE = "nvml"

_NOT_THERE = {pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}
_FAULTS = {pynvml.NVML_ERROR_GPU_IS_LOST: "GpuLost", pynvml.NVML_ERROR_RESET_REQUIRED: "GpuResetRequired"}


def main() -> None:
    """Look once."""
    given = report.settings()
    host_root = Path(str(given.get("host_root", "/")))
    expected = given.get("expected")
    known = {str(uuid): str(pci) for uuid, pci in dict(given.get("known") or {}).items()}  # type: ignore[call-overload]  # JSON from the agent
    report.leave(look(host_root, expected if isinstance(expected, int) else None, known))


def look(host_root: Path, expected: int | None, known: dict[str, str]) -> Report:
    """Ask NVML.

    :param expected: how many GPUs the machine must have, where that is known.
    :param known: UUID → PCI address of the GPUs that this machine was seen to have.
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
        _ask(seen, expected, known)
    finally:
        pynvml.nvmlShutdown()
    return seen


def _no_init(seen: Report, error: pynvml.NVMLError, *, required: bool) -> None:
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        seen.fault("DriverLibraryMismatch", "host", f"nvmlInit: {error}")
    elif error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
        seen.fault("GpuLost", "host", f"nvmlInit: {error}")
    elif error.value not in _NOT_THERE:
        raise error
    elif required:
        seen.fault("DriverNotLoaded", "host", f"nvmlInit: {error}")
    else:
        seen.absent(f"nvmlInit: {error}")


def _ask(seen: Report, expected: int | None, known: dict[str, str]) -> None:
    count = int(pynvml.nvmlDeviceGetCount())
    handles: dict[str, Any] = {}
    failed: list[tuple[int, pynvml.NVMLError]] = []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            pci = address(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
        except pynvml.NVMLError as error:
            failed.append((index, error))
        else:
            handles[uuid] = handle
            seen.gpu(
                uuid, pci, _optional(pynvml.nvmlDeviceGetSerial, handle), _optional(pynvml.nvmlDeviceGetName, handle)
            )
    named = _name_the_silent(seen, {uuid: pci for uuid, pci in known.items() if uuid not in handles})
    for index, cause in failed[len(named) :]:
        said = f"no handle for GPU {index}: {cause} (NVML {cause.value}); which GPU it is cannot be told"
        seen.fault(_FAULTS.get(cause.value, "GpuHandleError"), "host", said)
    seen.covers("host", *(f"gpu/{uuid}" for uuid in handles))
    missing = [uuid for uuid in known if uuid not in handles and uuid not in named]
    _count(seen, expected, answered=len(handles), listed=count, missing=missing)
    nvml_questions.judge(seen, handles)


def _name_the_silent(seen: Report, silent: dict[str, str]) -> set[str]:
    """Tell which of the known GPUs gave no handle, by asking for them by address; what is not listed is left."""
    named = set()
    for uuid, pci in silent.items():
        try:
            pynvml.nvmlDeviceGetHandleByPciBusId(pci)
        except pynvml.NVMLError as error:
            if error.value in {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT}:
                continue
            fault = _FAULTS.get(error.value, "GpuHandleError")
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
    """Write NVML's ``00000000:53:00.0`` as sysfs does: ``0000:53:00.0``."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _optional(ask: Any, handle: Any) -> str:
    try:
        return _text(ask(handle))
    except pynvml.NVMLError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
