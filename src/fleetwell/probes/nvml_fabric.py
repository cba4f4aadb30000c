"""What NVML says of a GPU's place in its NVLink fabric: has it joined, and is the fabric well.

The health mask has sub-fields of two bits (1: faulty, 2: well, 0: not told) and one of four (1: none, above: which
mistake in its configuration). A value beyond those makes no sense and is never well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetwell.probes.nvml_binding import pynvml
from fleetwell.probes.nvml_limits import limits

if TYPE_CHECKING:
    from fleetwell.probes.nvml_binding import Gpu
    from fleetwell.probes.nvml_samples import Samples
    from fleetwell.probes.report import Report

_STATES = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "has not begun to join its fabric",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "is joining its fabric",
}
_FLAGS = (
    (0, "bandwidth is degraded"),
    (2, "a route is being recovered"),
    (4, "a route is unhealthy"),
    (6, "it recovers from an access timeout"),
)
_CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
_UNHEALTHY = {2: "unhealthy", 3: "of limited capacity"}


def fabric(seen: Report, gpu: Gpu, samples: Samples) -> bool:
    """Judge it; say whether the GPU has joined its fabric.

    :raises pynvml.NVMLError: this model or driver does not tell.
    """
    info = _info(gpu)
    state = int(info.state)
    if state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return False  # The model has no fabric that it could join.
    if state in _STATES:
        lasted, grace = samples.lasted(f"{gpu.uuid} fabric"), limits().fabric_grace
        said = f"it {_STATES[state]} since {lasted:.0f} s or more"
        verdict = "" if lasted >= grace else "UNKNOWN"
        seen.fault("FabricIncomplete", gpu.component, said, verdict=verdict)
        return False
    if state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        seen.fault("FabricIncomplete", gpu.component, f"its fabric state is {state}, not known", verdict="UNKNOWN")
        return False
    if info.status != pynvml.NVML_SUCCESS:
        said = f"joining the fabric failed: {pynvml.NVMLError(info.status)} (NVML {info.status})"
        seen.fault("FabricIncomplete", gpu.component, said)
        return False
    _health(seen, gpu, info)
    return True


def _info(gpu: Gpu) -> Any:
    """Ask in the newest form that the driver knows."""
    for form in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
        info = form()
        try:
            pynvml.nvmlDeviceGetGpuFabricInfoV(gpu.handle, pynvml.byref(info))
        except pynvml.NVMLError as error:
            if error.value not in {
                pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
                pynvml.NVML_ERROR_INVALID_ARGUMENT,
                pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            }:
                raise
        else:
            return info
    oldest = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(gpu.handle, pynvml.byref(oldest))
    return oldest


def _health(seen: Report, gpu: Gpu, info: Any) -> None:
    mask = getattr(info, "healthMask", None)
    if mask is None:
        seen.blind("nvml: this driver does not tell the fabric's health")
        return
    bad: list[str] = []
    odd: list[str] = []
    for shift, says in _FLAGS:
        value = (mask >> shift) & 0x3
        (bad if value == 1 else odd if value == 3 else []).append(says)
    wrong = (mask >> 8) & 0xF
    if wrong in _CONFIGURATION:
        bad.append(f"configuration: {_CONFIGURATION[wrong]}")
    elif wrong > 1:
        odd.append(f"configuration: {wrong}")
    # The fabric manager is gone: what was set up goes on, but nothing new will be.
    lost_manager = (mask >> 14) & 0x3 == 2
    summary = _UNHEALTHY.get(int(getattr(info, "healthSummary", 0)), "")
    if bad or summary:
        said = ", ".join(bad) or f"the fabric is {summary}"
        seen.fault("FabricDegraded", gpu.component, f"fabric health {mask:#x}: {said}")
    elif odd:
        said = f"fabric health {mask:#x} makes no sense: {', '.join(odd)}"
        seen.fault("FabricDegraded", gpu.component, said, verdict="UNKNOWN", recovery="support")
    if lost_manager:
        seen.fault("FabricManagerDown", "host", f"fabric health {mask:#x}: the fabric manager is not connected")
