"""What one virtual node's GPUs and driver are like at this moment, and the text file in which the mock NVML reads it.

Each thing that can be wrong is kept where its end belongs: *volatile* is what a reset or a reboot takes away, *lasting*
is what stays in the silicon until the machine is replaced. So a reboot is nothing but new volatile parts.
"""

from enum import IntEnum, StrEnum

import msgspec

from fleetwell.lab.machine import Architecture, GpuModel, Machine
from fleetwell.lab.nic_state import NicState

# NVML's numbers for the architectures (NVML_DEVICE_ARCH_*), and the CUDA compute capability.
_ARCHITECTURES = {Architecture.ADA: (8, "8 9"), Architecture.HOPPER: (9, "9 0"), Architecture.BLACKWELL: (10, "10 0")}
_IDLE_C = 34
_IDLE_CLOCK_DIVISOR = 6
_FABRIC_COMPLETED = 3
_FABRIC_ALL_WELL = 0xAA  # "no" in each of the four two-bit health fields
_THROTTLE_IDLE = 0x1
_THROTTLE_HW_THERMAL = 0x48  # hardware slowdown, and its reason: heat
LINK_ERROR_NAMES = ("replay", "recovery", "crc_flit", "crc_data", "ecc")


class Where(StrEnum):
    """From which NVML call on something happens."""

    NEVER = "never"
    INIT = "init"
    ANY = "any"


class RecoveryAction(IntEnum):
    """NVML's recovery action; ``UNKNOWN_TO_DRIVER`` is a driver that has no such field."""

    UNKNOWN_TO_DRIVER = -1
    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4


class CudaError(msgspec.Struct):
    """What CUDA says to a process on this GPU; ``before`` (epoch seconds) spares processes that started later."""

    code: int
    before: float | None = None


class Holder(msgspec.Struct):
    """A process that has the GPU open; it counts only while it lives."""

    pid: int
    memory_mib: int


class GpuVolatile(msgspec.Struct):
    """Gone after a reset of this GPU, or a reboot."""

    lost: bool = False
    error: int = 0  # nvmlReturn_t of every call on this device
    cuda_error: CudaError | None = None
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    sram_threshold: bool = False
    rows_pending: bool = False
    recovery_action: RecoveryAction = RecoveryAction.NONE
    links_down: set[int] = msgspec.field(default_factory=set)
    link_errors: dict[int, list[int]] = msgspec.field(default_factory=dict)  # in the order of LINK_ERROR_NAMES
    fabric_state: int = _FABRIC_COMPLETED
    fabric_health: int = _FABRIC_ALL_WELL
    throttle: int = 0
    utilization: int = 0
    pcie_gen: int | None = None  # None: as fast as it goes
    pcie_width: int | None = None
    pcie_replays: int = 0
    holders: list[Holder] = msgspec.field(default_factory=list)


class GpuLasting(msgspec.Struct):
    """Stays until the machine is replaced."""

    absent: bool = False  # not on the bus any more
    dies: bool = False  # lost now, and absent after the next reboot
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    rows_corrected: int = 0
    rows_uncorrected: int = 0
    rows_failed: bool = False
    above_slowdown_c: int | None = None  # cooling is broken: so many degrees above the slowdown threshold
    mig: bool = False
    persistence: bool = True


class GpuState(msgspec.Struct):
    """One GPU."""

    uuid: str
    serial: str
    lasting: GpuLasting = msgspec.field(default_factory=GpuLasting)
    volatile: GpuVolatile = msgspec.field(default_factory=GpuVolatile)


class DriverState(msgspec.Struct):
    """The driver of this boot."""

    init_error: int = 0
    nvml_version: str | None = None  # another version than the kernel module's
    count: int = -1  # what the count says, whatever is there; -1: the truth
    latency_ms: int = 0
    hang: Where = Where.NEVER
    hang_file: str = ""  # empty: the hang is a sleep; else a write to this file
    crash: Where = Where.NEVER


class NodeState(msgspec.Struct):
    """Everything that one virtual node is, on disk as JSON."""

    machine: Machine
    seed: str
    dmi_serial: str
    dmi_uuid: str
    boot_id: str
    booted_at: float
    gpus: list[GpuState]
    missing_nics: set[str] = msgspec.field(default_factory=set)
    nics: dict[str, NicState] = msgspec.field(default_factory=dict)  # by name; those that something was done to
    driver: DriverState = msgspec.field(default_factory=DriverState)


def render(state: NodeState) -> str:
    """Write the state file of the mock NVML: one ``key value…`` a line; lab/nvml/state.c reads it."""
    driver = state.driver
    major, minor = (int(part) for part in state.machine.cuda_version.split("."))
    nvml_version = driver.nvml_version or state.machine.driver_version
    lines = [
        f"driver-version {state.machine.driver_version}",
        f"nvml-version {major}.{nvml_version}",
        f"cuda-version {major * 1000 + minor * 10}",
        f"init-error {driver.init_error}",
        f"count {driver.count}",
        f"latency-ms {driver.latency_ms}",
        f"hang {driver.hang}",
        f"crash {driver.crash}",
    ]
    if driver.hang_file:
        lines.append(f"hang-file {driver.hang_file}")
    for index, gpu in enumerate(state.gpus):
        lines += [f"device {index} {line}" for line in _device(state.machine.gpu, index, gpu)]
    return "\n".join([*lines, "end", ""])


def temperature(model: GpuModel, gpu: GpuState) -> int:
    """Return the GPU's temperature in degrees Celsius."""
    above = gpu.lasting.above_slowdown_c
    return _IDLE_C + gpu.volatile.utilization // 3 if above is None else model.slowdown_c + above


def _device(model: GpuModel, index: int, gpu: GpuState) -> list[str]:
    number, capability = _ARCHITECTURES[model.architecture]
    lasting, volatile = gpu.lasting, gpu.volatile
    busy = volatile.utilization > 0
    degrees = temperature(model, gpu)
    power_mw = model.power_limit_w * (100 + 8 * volatile.utilization)  # a tenth when idle, nine tenths when busy
    clock = model.clock_max_mhz if busy else model.clock_max_mhz // _IDLE_CLOCK_DIVISOR
    pcie_gen, pcie_width = volatile.pcie_gen or model.pcie_gen, volatile.pcie_width or model.pcie_width
    throttle = volatile.throttle if lasting.above_slowdown_c is None else volatile.throttle | _THROTTLE_HW_THERMAL
    fabric = (volatile.fabric_state, volatile.fabric_health) if model.nvlinks else (0, 0)
    lines = [
        f"uuid {gpu.uuid}",
        f"name {model.name}",
        f"serial {gpu.serial}",
        "vbios 96.00.89.00.01",
        f"pci {model.pci[index]}",
        f"pci-id {model.device_id << 16 | 0x10DE:#x} {model.subsystem_id << 16 | model.subsystem_vendor_id:#x}",
        f"minor {index}",
        f"numa-node {numa_node(model, index)}",
        f"architecture {number}",
        f"compute-capability {capability}",
        f"absent {lasting.absent:d}",
        f"lost {volatile.lost:d}",
        f"error {volatile.error}",
        f"memory-mib {model.memory_mib} 0",
        f"temperature {degrees} {degrees + 6}",
        f"temperature-limits {model.slowdown_c} {model.shutdown_c}",
        f"margin {model.slowdown_c - degrees}",
        f"power-mw {power_mw} {model.power_limit_w * 1000}",
        f"utilization {volatile.utilization}",
        f"clock-mhz {clock} {model.clock_max_mhz}",
        f"ecc-volatile {volatile.ecc_corrected} {volatile.ecc_uncorrected}",
        f"ecc-aggregate {lasting.ecc_corrected} {lasting.ecc_uncorrected}",
        f"sram-threshold {volatile.sram_threshold:d}",
        f"rows {lasting.rows_corrected} {lasting.rows_uncorrected} {volatile.rows_pending:d} {lasting.rows_failed:d}",
        f"recovery-action {volatile.recovery_action:d}",
        f"fabric {fabric[0]} {fabric[1]}",
        f"mig {int(lasting.mig) if model.mig else -1}",
        f"persistence {lasting.persistence:d}",
        f"throttle {throttle or (0 if busy else _THROTTLE_IDLE):#x}",
        f"pcie {pcie_gen} {model.pcie_gen} {pcie_width} {model.pcie_width}",
        f"pcie-replays {volatile.pcie_replays}",
    ]
    if volatile.cuda_error is not None:
        before = volatile.cuda_error.before
        lines.append(f"cuda-error {volatile.cuda_error.code} {'-' if before is None else before}")
    lines += [f"nvlink {link} {link not in volatile.links_down:d}" for link in range(model.nvlinks)]
    lines += [f"nvlink-errors {link} {' '.join(map(str, counts))}" for link, counts in volatile.link_errors.items()]
    return lines + [f"process {holder.pid} {holder.memory_mib}" for holder in volatile.holders]


def numa_node(model: GpuModel, index: int) -> int:
    """Return the NUMA node of a GPU: the second half of a machine with several GPUs is on the second socket."""
    return int(model.count > 1 and index >= model.count // 2)
