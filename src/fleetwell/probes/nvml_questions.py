"""What NVML is asked about each GPU, one function a question, and how the answers of several are judged together.

A question that a model or a driver does not answer is told as blind. One that fails on one GPU leaves that GPU's other
questions, and the other GPUs, to be judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetwell.probes import nvml_fabric, nvml_links, nvml_memory, nvml_pcie
from fleetwell.probes.nvml_binding import CANNOT_SAY, GONE, Gpu, field_values, pynvml

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetwell.probes.nvml_samples import Samples
    from fleetwell.probes.report import Report

RECOVERY_ACTIONS = {
    1: "GpuRecoveryActionReset",
    2: "GpuRecoveryActionReboot",
    3: "GpuRecoveryActionDrainP2P",
    4: "GpuRecoveryActionDrainAndReset",
    5: "GpuRecoveryActionRecoverImex",
}
"""Values of NVML's recovery action field (nvml.h of driver 570 and newer; 0 asks for nothing)."""


def recovery_action(seen: Report, gpu: Gpu) -> None:
    """What the driver itself asks for; drivers before 570 have only two flags."""
    action, reset, drain = field_values(
        gpu,
        [
            pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
            pynvml.NVML_FI_DEV_RESET_STATUS,
            pynvml.NVML_FI_DEV_DRAIN_AND_RESET_STATUS,
        ],
    )
    if action is None and reset is None and drain is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if action:
        fault = RECOVERY_ACTIONS.get(action, "GpuRecoveryActionUnknown")
        seen.fault(fault, gpu.component, f"NVML recovery action is {action}")
    elif action is None and reset:
        seen.fault("GpuRecoveryActionReset", gpu.component, "NVML reset status: a reset is required")
    elif action is None and drain:
        seen.fault("GpuRecoveryActionDrainAndReset", gpu.component, "NVML reset status: drain and reset")


def thermal_margin(seen: Report, gpu: Gpu) -> None:
    """Degrees left until the GPU slows down: at 0 it does."""
    try:
        margin = int(pynvml.nvmlDeviceGetMarginTemperature(gpu.handle))
        said = f"{margin} °C left until it slows down"
    except pynvml.NVMLError as error:
        if error.value not in CANNOT_SAY:
            raise
        now = pynvml.nvmlDeviceGetTemperature(gpu.handle, pynvml.NVML_TEMPERATURE_GPU)
        limit = pynvml.nvmlDeviceGetTemperatureThreshold(gpu.handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        margin = int(limit) - int(now)
        said = f"{now} °C where it slows down at {limit} °C"
    if margin <= 0:
        seen.fault("GpuOverheating", gpu.component, said)


def clock_limits(seen: Report, gpu: Gpu) -> None:
    """Whether the hardware holds the clocks down, for heat or for want of power."""
    reasons = int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu.handle))
    said = f"clocks event reasons {reasons:#x}"
    thermal = reasons & pynvml.nvmlClocksEventReasonHwThermalSlowdown
    brake = reasons & pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    if thermal:
        seen.fault("GpuThermalSlowdown", gpu.component, f"{said}: hardware thermal slowdown")
    if brake:
        seen.fault("GpuPowerBrake", gpu.component, f"{said}: power brake")
    if reasons & pynvml.nvmlClocksEventReasonHwSlowdown and not thermal and not brake:
        seen.fault("GpuHardwareSlowdown", gpu.component, f"{said}: hardware slowdown, without a finer reason")


QUESTIONS = (recovery_action, *nvml_memory.QUESTIONS, thermal_margin, clock_limits)


class Round:
    """One round of questions to all GPUs that gave a handle."""

    def __init__(self, seen: Report, gpus: list[Gpu], samples: Samples) -> None:
        self._seen = seen
        self._gpus = gpus
        self._samples = samples
        self._unanswered: dict[str, int] = {}
        self._lazy: list[Gpu] = []
        self._divided = 0
        self._links: dict[Gpu, dict[int, bool]] = {}
        self._pcie: dict[Gpu, nvml_pcie.Link] = {}
        self._switched: set[str] = set()

    def judge(self) -> None:
        """Ask every question of every GPU, compare what is comparable, and keep what the next look compares with."""
        samples, due = self._samples, self._samples.is_due
        if due:
            samples.begin()
        for gpu in self._gpus:
            try:
                self._ask(gpu, due=due)
            except pynvml.NVMLError as error:
                fault = GONE.get(error.value, "GpuHandleError")
                said = f"it stopped answering: {error} (NVML {error.value})"
                self._seen.fault(fault, gpu.component, said)
        nvml_links.compare(self._seen, self._links, self._switched)
        nvml_pcie.compare(self._seen, self._pcie)
        present = {gpu.uuid for gpu in self._gpus}
        for fault, component, said in samples.said:
            if component.split("/")[1] in present:
                self._seen.fault(fault, component, said)
        samples.save()
        for name, gpus in self._unanswered.items():
            self._seen.blind(f"nvml: {name.replace('_', ' ')} is not told by {gpus} of {len(self._gpus)} GPUs")
        if self._divided:
            divided = f"{self._divided} of {len(self._gpus)} GPUs are divided by MIG"
            self._seen.blind(f"nvml: NVLinks are not judged, and rows to be remapped are not told, while {divided}")
        if self._lazy:
            said = f"persistence mode is off on {len(self._lazy)} of {len(self._gpus)} GPUs"
            self._seen.fault("GpuPersistenceOff", "host", said, verdict="CONFIG")
        if samples.failure:
            self._seen.blind(f"nvml: {samples.failure}")

    def _ask(self, gpu: Gpu, *, due: bool) -> None:
        for question in QUESTIONS:
            self._one(gpu, question.__name__, lambda question=question: question(self._seen, gpu))  # type: ignore[misc]  # a default binds the loop's value
        self._one(gpu, "persistence", lambda: self._persistence(gpu))
        self._one(gpu, "pcie_link", lambda: self._pcie.update({gpu: nvml_pcie.link(gpu)}))
        self._one(gpu, "fabric", lambda: self._fabric(gpu))
        if nvml_memory.divided(gpu):
            self._divided += 1
            links = {}
        else:
            self._links[gpu] = links = nvml_links.states(gpu)
        if not due:
            return
        if gpu in self._pcie:
            self._one(gpu, "pcie_replays", lambda: nvml_pcie.replays(gpu, self._pcie[gpu], self._samples))
        if links:
            self._one(gpu, "nvlink_errors", lambda: self._errors(gpu, list(links)))

    def _one(self, gpu: Gpu, name: str, question: Callable[[], None]) -> None:
        try:
            question()
        except pynvml.NVMLError as error:
            if error.value in GONE:
                raise
            if error.value in CANNOT_SAY:
                self._unanswered[name] = self._unanswered.get(name, 0) + 1
                return
            said = f"{name.replace('_', ' ')}: {error} (NVML {error.value})"
            self._seen.fault("GpuHandleError", gpu.component, said, verdict="UNKNOWN")

    def _persistence(self, gpu: Gpu) -> None:
        if not pynvml.nvmlDeviceGetPersistenceMode(gpu.handle):
            self._lazy.append(gpu)

    def _fabric(self, gpu: Gpu) -> None:
        if nvml_fabric.fabric(self._seen, gpu, self._samples):
            self._switched.add(gpu.uuid)

    def _errors(self, gpu: Gpu, links: list[int]) -> None:
        if not nvml_links.error_rates(gpu, links, self._samples):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
