"""What each fault does to a node: its kernel lines, NVML's answers and sysfs, changed together.

The state changes before the lines are written, as on a real machine: who reads a line and looks finds it true.
"""

import time

from fleetwell.lab import freeze
from fleetwell.lab.fault_injection import FaultError, Injection
from fleetwell.lab.kernel_log import Facility, Level, Line
from fleetwell.lab.nic_state import NicState
from fleetwell.lab.nvml_state import (
    LINK_ERROR_NAMES,
    CudaError,
    DriverState,
    GpuLasting,
    GpuState,
    GpuVolatile,
    RecoveryAction,
    Where,
)
from fleetwell.lab.xid_lines import Form, Xid

_NVML_DRIVER_NOT_LOADED = 9
_NVML_VERSION_MISMATCH = 18
_CUDA_ECC_UNCORRECTABLE = 214
_CUDA_LAUNCH_FAILURE = 719
_NEWER_DRIVER = "575.57.08"
_HOT_BY_C = 3


def xid(injection: Injection) -> None:
    """Any Xid."""
    named = _NAMED_XIDS.get(injection.number)
    line_only = ("text", "form", "gpu-instance", "compute-instance", "caused-by")
    if (
        named
        and not injection.flag("only-line", default=False)
        and not any(key in injection.parameters for key in line_only)
    ):
        named(injection)
        return
    form = injection.word("form", Form.STANDARD)
    if form not in set(Form):
        message = f"form must be one of {', '.join(Form)}, not {form!r}; nothing was changed"
        raise FaultError(message)

    def optional(name: str) -> int | None:
        return injection.integer(name, 0) if name in injection.parameters else None

    event = Xid(
        number=injection.number,
        pci=injection.pci,
        index=injection.gpu,
        pid=injection.integer("pid", 4242),
        process=injection.word("process", "python3"),
        link=injection.integer("link", 14),
        text=injection.word("text", "") or None,
        form=Form(form),
        gpu_instance=optional("gpu-instance"),
        compute_instance=optional("compute-instance"),
        caused_by=optional("caused-by"),
    )
    injection.say(Line(event.line()))


def gpu_lost(injection: Injection) -> None:
    """Fallen off the bus, as current drivers report it."""
    _lose(injection)
    address = injection.pci
    injection.say(
        injection.xid(79),
        Line(f"NVRM: GPU {address}: GPU has fallen off the bus."),
        Line(f"NVRM: GPU {address}: GPU serial number is {injection.hardware.state.gpus[injection.gpu].serial}."),
        injection.xid(154, RecoveryAction.NODE_REBOOT),
    )


def gpu_lost_silent(injection: Injection) -> None:
    """Fallen off the bus, reported in three records without an Xid."""
    _lose(injection)
    device_id = injection.hardware.machine.gpu.device_id
    injection.say(
        Line(f"NVRM: The NVIDIA GPU {injection.pci}"),
        Line(f"NVRM: (PCI ID: 10de:{device_id:04x}) installed in this system has"),
        Line("NVRM: fallen off the bus and is not responding to commands."),
    )


def gpu_missing(injection: Injection) -> None:
    """Not enumerated, and nothing said."""
    with injection.hardware.update() as state:
        injection.state_of_gpu(state).lasting.absent = True


def row_remap_failed(injection: Injection) -> None:
    """No spare rows left."""
    with injection.hardware.update() as state:
        injection.state_of_gpu(state).lasting.rows_failed = True
    injection.say(injection.xid(64))


def row_remap_pending(injection: Injection) -> None:
    """A row waits for the next reset."""
    with injection.hardware.update() as state:
        _mark_row(injection.state_of_gpu(state))
    injection.say(injection.xid(63))


def ecc_dbe(injection: Injection) -> None:
    """An uncontained double bit error."""
    spent = injection.flag("spent", default=False)
    with injection.hardware.update() as state:
        gpu = injection.state_of_gpu(state)
        _uncorrectable(gpu)
        gpu.volatile.recovery_action = RecoveryAction.GPU_RESET
        if spent:
            gpu.lasting.rows_failed = True
        else:
            _mark_row(gpu)
    injection.say(injection.xid(48), injection.xid(64 if spent else 63), injection.xid(154, RecoveryAction.GPU_RESET))


def ecc_contained(injection: Injection) -> None:
    """An error that only its process pays for."""
    with injection.hardware.update() as state:
        _uncorrectable(injection.state_of_gpu(state))
    injection.say(injection.xid(94))


def nvlink_down(injection: Injection) -> None:
    """A link of the fourth generation or older fails."""
    _cut_link(injection)
    injection.say(injection.xid(74))


def nvlink5(injection: Injection) -> None:
    """A link of the fifth generation fails."""
    _cut_link(injection)
    injection.say(injection.xid(149))


def gsp_timeout(injection: Injection) -> None:
    """The GPU's system processor is silent."""
    hang = injection.flag("hang", default=False)
    with injection.hardware.update() as state:
        volatile = injection.state_of_gpu(state).volatile
        volatile.recovery_action = RecoveryAction.GPU_RESET
        volatile.cuda_error = CudaError(_CUDA_LAUNCH_FAILURE)
        if hang:
            state.driver.hang = Where.ANY
    injection.say(injection.xid(119), injection.xid(154, RecoveryAction.GPU_RESET))


def efa_missing(injection: Injection) -> None:
    """One interface fewer."""
    present = [
        nic.name
        for nic in injection.hardware.machine.nics
        if nic.driver == "efa" and nic.name not in injection.hardware.state.missing_nics
    ]
    if not present:
        message = "this machine has no EFA interface (left); nothing was changed"
        raise FaultError(message)
    name = injection.word("nic", present[-1])
    if name not in present:
        message = (
            f"{name} is not an EFA interface that is there; nothing was changed.\nhint: one of {', '.join(present)}"
        )
        raise FaultError(message)
    with injection.hardware.update() as state:
        state.missing_nics.add(name)


def gpu_hot(injection: Injection) -> None:
    """Too hot, and throttled for it."""
    above = injection.integer("above", _HOT_BY_C)
    with injection.hardware.update() as state:
        injection.state_of_gpu(state).lasting.above_slowdown_c = above


def nvml_hang(injection: Injection) -> None:
    """A hang that SIGKILL ends."""
    where = injection.where()
    with injection.hardware.update() as state:
        state.driver.hang = where
        state.driver.hang_file = ""


def nvml_hang_unkillable(injection: Injection) -> None:
    """A hang that SIGKILL does not end."""
    where = injection.where()
    hardware = injection.hardware
    try:
        trap = hardware.freezer.freeze()
    except freeze.FreezeError as error:
        message = f"{error}\nhint: this needs root and loop devices; nvml-hang works without. No fault was injected."
        raise FaultError(message) from error
    with hardware.update() as state:
        state.driver.hang = where
        state.driver.hang_file = str(trap)


def nvml_crash(injection: Injection) -> None:
    """The library aborts."""
    where = injection.where()
    with injection.hardware.update() as state:
        state.driver.crash = where


def driver_mismatch(injection: Injection) -> None:
    """Library and kernel module of different versions."""
    with injection.hardware.update() as state:
        state.driver.init_error = _NVML_VERSION_MISMATCH
        state.driver.nvml_version = _NEWER_DRIVER
    loaded = injection.hardware.machine.driver_version
    injection.say(
        Line(f"NVRM: API mismatch: the client has the version {_NEWER_DRIVER}, but"),
        Line(f"NVRM: this kernel module has the version {loaded}.  Please"),
        Line("NVRM: make sure that this kernel module and all NVIDIA driver"),
        Line("NVRM: components have the same version."),
    )


def driver_unloaded(injection: Injection) -> None:
    """No driver."""
    with injection.hardware.update() as state:
        state.driver.init_error = _NVML_DRIVER_NOT_LOADED


def userspace_echo(injection: Injection) -> None:
    """A forgery that must be harmless."""
    injection.say(Line(injection.xid(79).text, Level.CRITICAL, Facility.USER))


def clear(injection: Injection) -> None:
    """All is well again."""
    with injection.hardware.update() as state:
        state.driver = DriverState()
        state.missing_nics = set()
        state.nics = {name: NicState() for name in state.nics}
        for gpu in state.gpus:
            gpu.lasting = GpuLasting(mig=gpu.lasting.mig, persistence=gpu.lasting.persistence)
            gpu.volatile = GpuVolatile(holders=gpu.volatile.holders)
    # Last: who was blocked goes on, and must then find the driver answering.
    injection.hardware.freezer.dispose()


def _lose(injection: Injection) -> None:
    dies = not injection.flag("returns", default=True)
    with injection.hardware.update() as state:
        gpu = injection.state_of_gpu(state)
        gpu.lasting.dies = gpu.lasting.dies or dies
        gpu.volatile.lost = True
        gpu.volatile.recovery_action = RecoveryAction.NODE_REBOOT
        gpu.volatile.cuda_error = CudaError(_CUDA_LAUNCH_FAILURE)


def _uncorrectable(gpu: GpuState) -> None:
    gpu.volatile.ecc_uncorrected += 1
    gpu.lasting.ecc_uncorrected += 1
    # Real time and not the node's clock: it is compared with when a process started.
    gpu.volatile.cuda_error = CudaError(_CUDA_ECC_UNCORRECTABLE, before=time.time())


def _mark_row(gpu: GpuState) -> None:
    gpu.lasting.rows_uncorrected += 1
    gpu.volatile.rows_pending = True


def _cut_link(injection: Injection) -> None:
    link = injection.integer("link", 14)
    links = injection.hardware.machine.gpu.nvlinks
    if not 0 <= link < links:
        message = f"there is no NVLink {link}: GPUs of this machine have {links}; nothing was changed"
        raise FaultError(message)
    with injection.hardware.update() as state:
        volatile = injection.state_of_gpu(state).volatile
        volatile.links_down.add(link)
        before = volatile.link_errors.get(link, [0] * len(LINK_ERROR_NAMES))
        volatile.link_errors[link] = [count + more for count, more in zip(before, (12, 3, 40, 8, 0), strict=True)]


_NAMED_XIDS = {
    48: ecc_dbe,
    63: row_remap_pending,
    64: row_remap_failed,
    74: nvlink_down,
    79: gpu_lost,
    94: ecc_contained,
    119: gsp_timeout,
    149: nvlink5,
}
