"""The columns that the lab's ``nvidia-smi`` can be asked for: name → how it is read and its unit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pynvml

_MIB = 1024 * 1024
_NOT_AVAILABLE = "[N/A]"
_RECOVERY_ACTIONS = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")
_FABRIC_STATES = ("N/A", "Not Started", "In Progress", "Completed")


@dataclass(frozen=True)
class Device:
    """One GPU as NVML gave it out; the handle is a pointer of the bindings, which have no types."""

    index: int
    handle: Any


@dataclass(frozen=True)
class Getter:
    """How one column is read. ``read`` gives the rows' values: one for a GPU, or one for each of its processes."""

    read: Callable[[Device], list[str]]
    unit: str = ""

    def values(self, device: Device) -> Iterator[str]:
        """Yield the column's values for one GPU; what the GPU does not know is [N/A], a lost GPU says so."""
        try:
            yield from self.read(device)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                yield _NOT_AVAILABLE
            elif error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                yield "[GPU is lost]"
            else:
                yield "[Unknown Error]"


Value: TypeAlias = Callable[[Any], object]


def _one(value: Value, unit: str = "") -> Getter:
    return Getter(lambda device: [str(value(device.handle))], unit)


def _ecc(kind: int, counter: int) -> Getter:
    return _one(lambda handle: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter))


def _rows(position: int, *, yes_no: bool = False) -> Getter:
    def read(handle: Any) -> object:
        value = pynvml.nvmlDeviceGetRemappedRows(handle)[position]
        return ("Yes" if value else "No") if yes_no else value

    return _one(read)


def _recovery_action(handle: Any) -> str:
    field = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    return _RECOVERY_ACTIONS[field.value.uiVal]


def _fabric_state(handle: Any) -> str:
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, pynvml.byref(info))
    return _FABRIC_STATES[info.state]


def _enabled(value: object) -> str:
    return "Enabled" if value else "Disabled"


def _memory(name: str) -> Getter:
    return _one(lambda handle: getattr(pynvml.nvmlDeviceGetMemoryInfo(handle), name) // _MIB, "MiB")


GPU_FIELDS: dict[str, Getter] = {
    "index": Getter(lambda device: [str(device.index)]),
    "count": _one(lambda _handle: pynvml.nvmlDeviceGetCount()),
    "name": _one(pynvml.nvmlDeviceGetName),
    "uuid": _one(pynvml.nvmlDeviceGetUUID),
    "gpu_uuid": _one(pynvml.nvmlDeviceGetUUID),
    "serial": _one(pynvml.nvmlDeviceGetSerial),
    "vbios_version": _one(pynvml.nvmlDeviceGetVbiosVersion),
    "driver_version": _one(lambda _handle: pynvml.nvmlSystemGetDriverVersion()),
    "pci.bus_id": _one(lambda handle: pynvml.nvmlDeviceGetPciInfo(handle).busId),
    "pcie.link.gen.current": _one(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
    "pcie.link.gen.max": _one(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
    "pcie.link.width.current": _one(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
    "pcie.link.width.max": _one(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    "persistence_mode": _one(lambda handle: _enabled(pynvml.nvmlDeviceGetPersistenceMode(handle))),
    "mig.mode.current": _one(lambda handle: _enabled(pynvml.nvmlDeviceGetMigMode(handle)[0])),
    "pstate": _one(lambda handle: f"P{pynvml.nvmlDeviceGetPerformanceState(handle)}"),
    "memory.total": _memory("total"),
    "memory.used": _memory("used"),
    "memory.free": _memory("free"),
    "utilization.gpu": _one(lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu, "%"),
    "temperature.gpu": _one(lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
    "temperature.gpu.tlimit": _one(pynvml.nvmlDeviceGetMarginTemperature),
    "power.draw": _one(lambda handle: f"{pynvml.nvmlDeviceGetPowerUsage(handle) / 1000:.2f}", "W"),
    "power.limit": _one(lambda handle: f"{pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000:.2f}", "W"),
    "clocks.sm": _one(lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), "MHz"),
    "clocks_event_reasons.active": _one(
        lambda handle: f"{pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle):#018x}"
    ),
    "ecc.mode.current": _one(lambda handle: _enabled(pynvml.nvmlDeviceGetEccMode(handle)[0])),
    "ecc.errors.corrected.volatile.total": _ecc(0, 0),
    "ecc.errors.uncorrected.volatile.total": _ecc(1, 0),
    "ecc.errors.corrected.aggregate.total": _ecc(0, 1),
    "ecc.errors.uncorrected.aggregate.total": _ecc(1, 1),
    "gpu_recovery_action": _one(_recovery_action),
    "fabric.state": _one(_fabric_state),
}
REMAPPED_ROW_FIELDS: dict[str, Getter] = {
    "gpu_name": GPU_FIELDS["name"],
    "gpu_bus_id": GPU_FIELDS["pci.bus_id"],
    "gpu_uuid": GPU_FIELDS["uuid"],
    "remapped_rows.correctable": _rows(0),
    "remapped_rows.uncorrectable": _rows(1),
    "remapped_rows.pending": _rows(2, yes_no=True),
    "remapped_rows.failure": _rows(3, yes_no=True),
}


def _per_process(value: Callable[[Device, Any], object], unit: str = "") -> Getter:
    def read(device: Device) -> list[str]:
        return [str(value(device, one)) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(device.handle)]

    return Getter(read, unit)


COMPUTE_APP_FIELDS: dict[str, Getter] = {
    "gpu_uuid": _per_process(lambda device, _process: pynvml.nvmlDeviceGetUUID(device.handle)),
    "gpu_bus_id": _per_process(lambda device, _process: pynvml.nvmlDeviceGetPciInfo(device.handle).busId),
    "pid": _per_process(lambda _device, process: process.pid),
    "used_memory": _per_process(lambda _device, process: process.usedGpuMemory // _MIB, "MiB"),
    "used_gpu_memory": _per_process(lambda _device, process: process.usedGpuMemory // _MIB, "MiB"),
}
