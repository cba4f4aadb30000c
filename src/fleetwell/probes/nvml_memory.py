"""What NVML is asked about a GPU's memory: errors, rows and pages that wait for repair or could not be repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetwell.probes.nvml_binding import CANNOT_SAY, pynvml
from fleetwell.probes.nvml_limits import limits

if TYPE_CHECKING:
    from fleetwell.probes.nvml_binding import Gpu
    from fleetwell.probes.report import Report

_CORRECTED, _UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_CAUSES = (
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
)


def memory_repair(seen: Report, gpu: Gpu) -> None:
    """Rows that wait for a reset or could not be remapped; before Ampere, pages. Not told while MIG is on."""
    try:
        corrected, uncorrected, pending, failed = pynvml.nvmlDeviceGetRemappedRows(gpu.handle)
    except pynvml.NVMLError as error:
        if error.value not in CANNOT_SAY or divided(gpu):
            raise
        _retired_pages(seen, gpu)
        return
    said = f"remapped rows: {corrected} corrected, {uncorrected} uncorrected, pending {pending}, failed {failed}"
    most = limits().remapped_rows
    if failed:
        seen.fault("GpuRowRemapFailed", gpu.component, said)
    elif uncorrected >= most:
        seen.fault("GpuRowRemapFailed", gpu.component, f"{said}; from {most} on a GPU is worn out")
    if pending:
        seen.fault("GpuRowRemapPending", gpu.component, said)


def divided(gpu: Gpu) -> bool:
    """Tell whether it is divided by MIG: then rows are not told, pages never were, and NVLinks are not in use."""
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(gpu.handle)[0])
    except pynvml.NVMLError as error:
        if error.value not in CANNOT_SAY:
            raise
        return False


def _retired_pages(seen: Report, gpu: Gpu) -> None:
    retired = sum(len(pynvml.nvmlDeviceGetRetiredPages(gpu.handle, cause)) for cause in _CAUSES)
    most = limits().retired_pages
    if retired > most:
        seen.fault("GpuRetiredPagesExceeded", gpu.component, f"{retired} retired pages, of {most} that may be")
    if pynvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu.handle):
        seen.fault("GpuPageRetirementPending", gpu.component, f"{retired} retired pages, and more wait for a reset")


def uncorrected_memory_errors(seen: Report, gpu: Gpu) -> None:
    """Errors since the last reset that could not be corrected."""
    count = _errors(gpu, _UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    if count > 0:
        seen.fault("GpuEccUncorrectable", gpu.component, f"{count} uncorrectable memory errors since the last reset")


def lifetime_memory_errors(seen: Report, gpu: Gpu) -> None:
    """Errors of the GPU's whole life: history, but for a number that no sound GPU reaches."""
    count, most = _errors(gpu, _UNCORRECTED, pynvml.NVML_AGGREGATE_ECC), limits().aggregate_uncorrected
    if count > most:
        said = f"{count} uncorrectable memory errors in its life, of {most} that may be"
        seen.fault("GpuMemoryWorn", gpu.component, said)


def corrected_memory_errors(seen: Report, gpu: Gpu) -> None:
    """Errors that were corrected: noted where they are many."""
    count, most = _errors(gpu, _CORRECTED, pynvml.NVML_VOLATILE_ECC), limits().volatile_corrected
    if count > most:
        said = f"{count} corrected memory errors since the last reset, of {most} that are not worth a word"
        seen.fault("GpuCorrectedErrors", gpu.component, said, verdict="OK")


def on_chip_memory_threshold(seen: Report, gpu: Gpu) -> None:
    """The vendor's own limit of uncorrectable errors in on-chip memory."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(gpu.handle, pynvml.byref(status))
    if status.bThresholdExceeded:
        seen.fault("GpuSramThresholdExceeded", gpu.component, "the driver's SRAM threshold flag is set")


def _errors(gpu: Gpu, kind: int, since: int) -> int:
    return int(pynvml.nvmlDeviceGetTotalEccErrors(gpu.handle, kind, since))


QUESTIONS = (
    memory_repair,
    uncorrected_memory_errors,
    lifetime_memory_errors,
    corrected_memory_errors,
    on_chip_memory_threshold,
)
