"""What NVML is asked about each GPU, one function a question: memory, recovery action, heat, PCIe, NVLink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetwell.probes.report import Report

RECOVERY_ACTIONS = {
    1: "GpuRecoveryActionReset",
    2: "GpuRecoveryActionReboot",
    3: "GpuRecoveryActionDrainP2P",
    4: "GpuRecoveryActionDrainAndReset",
    5: "GpuRecoveryActionRecoverImex",
}
"""Values of NVML's recovery action field (nvml.h of driver 570 and newer; 0 asks for nothing)."""

MAX_LINKS = 36

_CANNOT_SAY = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NO_PERMISSION,
}
_GONE = {pynvml.NVML_ERROR_GPU_IS_LOST: "GpuLost", pynvml.NVML_ERROR_RESET_REQUIRED: "GpuResetRequired"}


def judge(seen: Report, handles: dict[str, Any]) -> None:
    """Ask every question of every GPU that gave a handle.

    :param handles: UUID → NVML handle.
    """
    unanswered: dict[str, int] = {}
    links: dict[str, dict[int, bool]] = {}
    for uuid, handle in handles.items():
        try:
            for question in QUESTIONS:
                if not _answered(seen, question, uuid, handle):
                    unanswered[question.__name__] = unanswered.get(question.__name__, 0) + 1
            links[uuid] = _links(handle)
        except pynvml.NVMLError as error:
            fault = _GONE.get(error.value, "GpuHandleError")
            seen.fault(fault, f"gpu/{uuid}", f"it stopped answering: {error} (NVML {error.value})")
    for name, gpus in unanswered.items():
        seen.blind(f"nvml: {name.replace('_', ' ')} is not told by {gpus} of {len(handles)} GPUs")
    _compare_links(seen, links)


def _answered(seen: Report, question: Callable[[Report, str, Any], None], uuid: str, handle: Any) -> bool:
    try:
        question(seen, f"gpu/{uuid}", handle)
    except pynvml.NVMLError as error:
        if error.value in _CANNOT_SAY:
            return False
        if error.value in _GONE:
            raise
        what = question.__name__.replace("_", " ")
        seen.fault("GpuHandleError", f"gpu/{uuid}", f"{what}: {error} (NVML {error.value})", verdict="UNKNOWN")
    return True


def recovery_action(seen: Report, gpu: str, handle: Any) -> None:
    """What the driver itself asks for."""
    (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    action = int(field.value.uiVal)
    if action != 0:
        fault = RECOVERY_ACTIONS.get(action, "GpuRecoveryActionUnknown")
        seen.fault(fault, gpu, f"NVML recovery action is {action}")


def row_remap(seen: Report, gpu: str, handle: Any) -> None:
    """Memory rows that wait for a reset, or could not be remapped. Not told while MIG instances exist."""
    corrected, uncorrected, pending, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
    said = f"remapped rows: {corrected} corrected, {uncorrected} uncorrected, pending {pending}, failed {failed}"
    if failed:
        seen.fault("GpuRowRemapFailed", gpu, said)
    if pending:
        seen.fault("GpuRowRemapPending", gpu, said)


def uncorrected_memory_errors(seen: Report, gpu: str, handle: Any) -> None:
    """Errors since the last reset that could not be corrected."""
    count = pynvml.nvmlDeviceGetTotalEccErrors(
        handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    )
    if count > 0:
        seen.fault("GpuEccUncorrectable", gpu, f"{count} uncorrectable memory errors since the last reset")


def on_chip_memory_threshold(seen: Report, gpu: str, handle: Any) -> None:
    """The vendor's own limit of uncorrectable errors in on-chip memory."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, pynvml.byref(status))
    if status.bThresholdExceeded:
        seen.fault("GpuSramThresholdExceeded", gpu, "the driver's SRAM threshold flag is set")


def thermal_margin(seen: Report, gpu: str, handle: Any) -> None:
    """Degrees left until the GPU slows down: at 0 it does."""
    try:
        margin = int(pynvml.nvmlDeviceGetMarginTemperature(handle))
        said = f"{margin} °C left until it slows down"
    except pynvml.NVMLError as error:
        if error.value not in _CANNOT_SAY:
            raise
        now = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
        limit = pynvml.nvmlDeviceGetTemperatureThreshold(handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        margin = int(limit) - int(now)
        said = f"{now} °C where it slows down at {limit} °C"
    if margin <= 0:
        seen.fault("GpuOverheating", gpu, said)


def clock_limits(seen: Report, gpu: str, handle: Any) -> None:
    """Whether the hardware holds the clocks down, for heat or for want of power."""
    reasons = int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if reasons & pynvml.nvmlClocksEventReasonHwThermalSlowdown:
        seen.fault("GpuThermalSlowdown", gpu, f"clocks event reasons {reasons:#x}: hardware thermal slowdown")
    if reasons & pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown:
        seen.fault("GpuPowerBrake", gpu, f"clocks event reasons {reasons:#x}: power brake")


def pcie_speed(seen: Report, gpu: str, handle: Any) -> None:
    """The link's generation, judged only at full power state: an idle GPU lowers it by itself."""
    if pynvml.nvmlDeviceGetPerformanceState(handle) != pynvml.NVML_PSTATE_0:
        return
    now = pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)
    most = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
    if now < most:
        seen.fault("PcieDegraded", gpu, f"PCIe generation {now} where GPU and slot can do {most}")


QUESTIONS = (
    recovery_action,
    row_remap,
    uncorrected_memory_errors,
    on_chip_memory_threshold,
    thermal_margin,
    clock_limits,
    pcie_speed,
)


def _links(handle: Any) -> dict[int, bool]:
    """Tell which NVLinks are active; empty where the GPU has none."""
    states = {}
    for link in range(MAX_LINKS):
        try:
            states[link] = bool(pynvml.nvmlDeviceGetNvLinkState(handle, link))
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                raise
            break
    return states


def _compare_links(seen: Report, links: dict[str, dict[int, bool]]) -> None:
    """Call a link down that is up on most of the machine's GPUs: bridges may rightly leave a link unused."""
    numbers = sorted({link for states in links.values() for link in states})
    for link in numbers:
        having = {uuid: states[link] for uuid, states in links.items() if link in states}
        active = sum(having.values())
        for uuid, up in having.items():
            component = f"nvlink/{uuid}/{link}"
            seen.covers(component)
            if not up and active * 2 > len(having):
                said = f"NVLink {link} is inactive; it is active on {active} of the machine's {len(having)} GPUs"
                seen.fault("NvlinkDown", component, said)
