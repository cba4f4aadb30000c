"""Faults on demand: by name, each showing in every place where the real machine would show it.

``inject`` is the one way in. What a fault does is written in ``fault_effects``; this module is the table, the checks
and the parameters, so that a command line can list and refuse before anything changes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from fleetwell.lab import fault_effects as effects
from fleetwell.lab import nic_faults
from fleetwell.lab.fault_injection import FaultError, Injection
from fleetwell.lab.hardware import Hardware

__all__ = ["FAULTS", "FaultError", "FaultSpec", "inject"]

Value: TypeAlias = str | int | bool

_XID = re.compile(r"xid:(\d{1,4})")
_XID_NAME = "xid:N"
_NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})
_PROCESS = {"pid": "process id in the line", "process": "process name in the line"}
_LINK = {"link": "number of the NVLink (14)"}
_WHERE = {"where": "init or any (any): from which NVML call on"}


@dataclass(frozen=True)
class FaultSpec:
    """One kind of fault: what it is in a sentence, whether it needs a GPU's index, and what may be chosen."""

    name: str
    sentence: str
    needs_gpu: bool
    apply: Callable[[Injection], None]
    parameters: Mapping[str, str] = field(default_factory=lambda: _NO_PARAMETERS)


def _table(*specs: FaultSpec) -> Mapping[str, FaultSpec]:
    return MappingProxyType({spec.name: spec for spec in specs})


FAULTS: Mapping[str, FaultSpec] = _table(
    FaultSpec(
        _XID_NAME,
        "The driver reports Xid N in the kernel log; an N that another fault here stands for (79, 48, 63, 64, 74, 94, "
        "119, 149) does all of that fault, unless only-line or a form of the line is given.",
        True,
        effects.xid,
        {
            **_PROCESS,
            **_LINK,
            "text": "message instead of the driver's own",
            "form": "standard, function, legacy or bare",
            "gpu-instance": "MIG GPU instance",
            "compute-instance": "MIG compute instance",
            "caused-by": "number of the Xid that caused this one",
            "only-line": "true: the kernel line and nothing else",
        },
    ),
    FaultSpec(
        "gpu-lost",
        "The GPU falls off the bus: Xid 79 and 154 (Node Reboot Required), NVML says it is lost, its PCI registers "
        "read all ones, and processes on it die.",
        True,
        effects.gpu_lost,
        {"returns": "false: it is dead, and after the next reboot absent (true)"},
    ),
    FaultSpec(
        "gpu-lost-silent",
        "The GPU falls off the bus, and the driver says so in three records without any Xid.",
        True,
        effects.gpu_lost_silent,
        {"returns": "false: it is dead, and after the next reboot absent (true)"},
    ),
    FaultSpec(
        "gpu-missing",
        "The GPU is not on the bus any more: one fewer in PCI, NVML and /dev, and not a word in the kernel log.",
        True,
        effects.gpu_missing,
    ),
    FaultSpec(
        "row-remap-failed",
        "No spare rows are left in a memory bank: Xid 64 and the remap failure flag, which stays until the machine "
        "is replaced; running work goes on.",
        True,
        effects.row_remap_failed,
    ),
    FaultSpec(
        "row-remap-pending",
        "A memory row waits for the next reset to be remapped: Xid 63 and the pending flag.",
        True,
        effects.row_remap_pending,
    ),
    FaultSpec(
        "ecc-dbe",
        "A double bit error in device memory: Xid 48, its neighbour 63 and 154 (GPU Reset Required), ECC counters, and "
        "the processes that were on it die.",
        True,
        effects.ecc_dbe,
        {**_PROCESS, "spent": "true: no spare rows are left either, so 64 stands for 63"},
    ),
    FaultSpec(
        "ecc-contained",
        "An uncorrectable ECC error that the GPU contained: Xid 94 and the counters; the process that touched it dies, "
        "later ones run.",
        True,
        effects.ecc_contained,
        _PROCESS,
    ),
    FaultSpec(
        "nvlink-down",
        "An NVLink of the GPU fails: Xid 74, the link inactive and its error counters up.",
        True,
        effects.nvlink_down,
        _LINK,
    ),
    FaultSpec(
        "nvlink5",
        "A fatal NVLink 5 link event in the form of Blackwell's drivers: Xid 149 and the link inactive.",
        True,
        effects.nvlink5,
        _LINK,
    ),
    FaultSpec(
        "gsp-timeout",
        "The GPU's system processor stops answering: Xid 119 and 154 (GPU Reset Required); processes on it die.",
        True,
        effects.gsp_timeout,
        {**_PROCESS, "hang": "true: NVML hangs as well (false)"},
    ),
    FaultSpec(
        "efa-missing",
        "One EFA interface is gone from PCI and InfiniBand; a reboot does not bring it back.",
        False,
        effects.efa_missing,
        {"nic": "name of the interface (the last EFA)"},
    ),
    FaultSpec(
        "efa-dead",
        "An EFA interface stops answering its driver: admin commands are given up, its keep-alives stand still.",
        False,
        nic_faults.efa_dead,
        {"nic": "name of the interface (the last EFA)"},
    ),
    FaultSpec(
        "nic-degraded",
        "A network adapter is up at half its rate, or with half its PCIe lanes, and nothing says so.",
        False,
        nic_faults.degraded,
        {
            "nic": "name of the adapter (the last one)",
            "what": "rate or pcie (rate)",
            "gbps": "the rate (half of its own)",
            "lanes": "the PCIe lanes (4)",
        },
    ),
    FaultSpec(
        "nic-down",
        "The port of an InfiniBand adapter is down, and a reboot does not bring it back.",
        False,
        nic_faults.down,
        {"nic": "name of the adapter (the last InfiniBand one)"},
    ),
    FaultSpec(
        "nic-flap",
        "The port of an InfiniBand adapter went down and came back several times; only its counters tell.",
        False,
        nic_faults.flap,
        {"nic": "name of the adapter (the last InfiniBand one)", "times": "how often (3)"},
    ),
    FaultSpec(
        "nic-errors",
        "A counter of a network adapter rises at once.",
        False,
        nic_faults.counting,
        {
            "nic": "name of the adapter (the last one)",
            "counter": "which one (symbol_error; of EFA rdma_read_wr_err)",
            "by": "by how much (1000)",
        },
    ),
    FaultSpec(
        "gpu-hot",
        "Cooling fails: the GPU is above its slowdown threshold, throttles, and has a negative margin.",
        True,
        effects.gpu_hot,
        {"above": "degrees above the slowdown threshold (3)"},
    ),
    FaultSpec("nvml-hang", "The driver stops answering: NVML calls sleep for ever.", False, effects.nvml_hang, _WHERE),
    FaultSpec(
        "nvml-hang-unkillable",
        "The driver stops answering inside the kernel: NVML's callers are in state D and outlive SIGKILL (needs root).",
        False,
        effects.nvml_hang_unkillable,
        _WHERE,
    ),
    FaultSpec("nvml-crash", "The NVML library aborts the process that calls it.", False, effects.nvml_crash, _WHERE),
    FaultSpec(
        "driver-mismatch",
        "The driver's library was updated under a loaded kernel module: initialisation fails with a version mismatch.",
        False,
        effects.driver_mismatch,
    ),
    FaultSpec(
        "driver-unloaded",
        "The kernel module is not loaded: NVML says that there is no driver.",
        False,
        effects.driver_unloaded,
    ),
    FaultSpec(
        "userspace-echo",
        "Somebody writes the text of an Xid 79 into /dev/kmsg from user space: facility 1, and nothing is wrong.",
        True,
        effects.userspace_echo,
    ),
    FaultSpec(
        "clear",
        "Everything injected ends, lasting damage included; the kernel log keeps what was said.",
        False,
        effects.clear,
    ),
)


def inject(hardware: Hardware, fault: str, gpu: int | None = None, **parameters: Value) -> tuple[str, ...]:
    """Make a fault happen on a node, and return the kernel lines that it wrote.

    ``fault`` is a name of FAULTS, with a number for ``xid:N``. Parameters are written with ``_`` for ``-`` and may be
    strings, as from a command line. Raises FaultError before anything has changed.
    """
    number = _XID.fullmatch(fault)
    spec = FAULTS.get(_XID_NAME if number else fault)
    if spec is None or fault == _XID_NAME:
        message = f"there is no fault {fault!r}; nothing was changed.\nhint: one of {', '.join(FAULTS)}"
        raise FaultError(message)
    given = {name.replace("_", "-"): value for name, value in parameters.items()}
    unknown = sorted(given.keys() - spec.parameters.keys())
    if unknown:
        known = ", ".join(spec.parameters) or "none"
        message = f"{fault} has no parameter {', '.join(unknown)} (it has: {known}); nothing was changed"
        raise FaultError(message)
    if spec.needs_gpu and gpu is None:
        message = f"{fault} needs to know which GPU; nothing was changed.\nhint: give an index from 0"
        raise FaultError(message)
    count = hardware.machine.gpu.count
    if gpu is not None and not 0 <= gpu < count:
        message = f"there is no GPU {gpu}: this machine has 0 to {count - 1}; nothing was changed"
        raise FaultError(message)
    injection = Injection(hardware, gpu or 0, given, int(number.group(1)) if number else 0)
    spec.apply(injection)
    return tuple(line.text for line in injection.lines)
