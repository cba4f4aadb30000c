"""What a kernel line means: from the read line to fault, verdict and recovery. Where it is, the reader adds."""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from fleetwell.health.catalogue import UNKNOWN_XID, XidRule, fault, for_xid
from fleetwell.health.driver_line import DriverKind
from fleetwell.health.nic_line import NicKind
from fleetwell.health.nvlink4 import Nvlink4, decode_nvlink4
from fleetwell.health.nvlink5 import Decoded, decode
from fleetwell.health.sxid_line import SxidKind
from fleetwell.health.system_line import SystemKind, SystemLine
from fleetwell.health.vocabulary import SECONDARY, FaultName, Recovery, Verdict
from fleetwell.health.xid_line import (
    XidLine,
    nvlink_number,
    nvlink_registers,
    processor_unit,
    recovery_action,
)


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """What one line asks for."""

    fault: FaultName
    verdict: Verdict
    recovery: Recovery
    link: int | None = None
    """NVLink of the GPU that it is about, where it is not about the whole GPU."""
    unit: str = ""


_GRAPHICS_EXCEPTION: Final = 13
_PREEMPTIVE_REMOVAL: Final = 45
_NVLINK_ERROR: Final = 74
_RECOVERY_CHANGED: Final = 154
_NVLINK5: Final = range(144, 151)

_RECOVERY_TEXTS: Final = {
    "none": None,
    "gpu reset required": "GpuRecoveryActionReset",
    "node reboot required": "GpuRecoveryActionReboot",
    "drain p2p": "GpuRecoveryActionDrainP2P",
    "drain and reset": "GpuRecoveryActionDrainAndReset",
    "recover imex domain": "GpuRecoveryActionRecoverImex",
}
NOTHING_ASKED: Final = "GpuRecoveryActionNone"
"""What a 154 says that takes an earlier one back."""
RECOVERY_ASKED: Final = frozenset({"GpuRecoveryActionUnknown", *(name for name in _RECOVERY_TEXTS.values() if name)})
"""What a 154 says that asks for something."""
_RECOVERY_NUMBERS: Final = ("none", "gpu reset required", "node reboot required", "drain p2p", "drain and reset")

_DRIVER: Final = {
    DriverKind.FALLEN_OFF_BUS: "GpuFallenOffBus",
    DriverKind.BUS_LOSS_TAIL: "GpuFallenOffBus",
    DriverKind.UNSUPPORTED_TAIL: "GpuUnsupported",
    DriverKind.GPU_LOST: "GpuLost",
    DriverKind.INIT_FAILED: "GpuInitFailed",
    DriverKind.GSP_SILENT: "GpuGspTimeout",
    DriverKind.RESET_REQUIRED: "GpuResetRequired",
    DriverKind.API_MISMATCH: "DriverLibraryMismatch",
    DriverKind.REBOOT_ASKED: "GpuRecoveryActionReboot",
    DriverKind.LINK_MASK_STUCK: "NvlinkMaskStuck",
    DriverKind.TASK_HUNG: "DriverTaskHung",
    DriverKind.NCCL_CRASH: "ApplicationCrash",
}
_NIC: Final = {
    NicKind.ADMIN_QUEUE_DEAD: "EfaAdminQueueDead",
    NicKind.INIT_FAILED: "EfaInitFailed",
    NicKind.ADAPTER_INIT_FAILED: "NicInitFailed",
    NicKind.RESOURCES: "EfaResources",
    NicKind.HEALTH_COMPROMISED: "NicHealthCompromised",
    NicKind.COMMAND_TIMEOUT: "NicCommandTimeout",
    NicKind.TRANSMIT_TIMEOUT: "NicTransmitStuck",
    NicKind.OVERHEATING: "NicOverheating",
    NicKind.POWER_LIMITED: "NicPowerLimited",
    NicKind.MODULE_UNPLUGGED: "NicModuleUnplugged",
    NicKind.LINK_DOWN: "NicLinkFlapping",
}
_SYSTEM: Final = {
    SystemKind.PCIE_FATAL: "PcieFatalError",
    SystemKind.PCIE_UNRECOVERED: "PcieFatalError",
    SystemKind.PCIE_SILENT: "GpuFallenOffBus",
    SystemKind.PCIE_NON_FATAL: "PcieErrorsUncorrected",
    SystemKind.PCIE_CORRECTED: "PcieErrorRate",
    SystemKind.MEMORY_UNCORRECTED: "HostMemoryUncorrectable",
    SystemKind.GPU_PROGRAM_OUT_OF_MEMORY: "ApplicationOutOfMemory",
    SystemKind.STORAGE_TIMEOUT: "StorageTimeouts",
    SystemKind.STORAGE_ERROR: "StorageErrors",
    SystemKind.STORAGE_GONE: "StorageGone",
    SystemKind.STORAGE_READ_ONLY: "StorageReadOnly",
}
_NIC_PCIE: Final = {
    SystemKind.PCIE_FATAL: "NicPcieFatal",
    SystemKind.PCIE_UNRECOVERED: "NicPcieFatal",
    SystemKind.PCIE_SILENT: "NicPcieFatal",
    SystemKind.PCIE_NON_FATAL: "NicPcieErrors",
    SystemKind.PCIE_CORRECTED: "NicPcieErrors",
}
_SWITCH: Final = {
    SxidKind.FATAL: "NvswitchFatal",
    SxidKind.NON_FATAL: "NvswitchNoted",
    SxidKind.UNREADABLE: "NvswitchUnknown",
}


@functools.lru_cache(maxsize=256)
def by_catalogue(name: str, link: int | None = None) -> Meaning:
    """Give what the catalogue says of a fault."""
    entry = fault(name)
    return Meaning(fault=entry.name, verdict=entry.verdict, recovery=entry.recovery, link=link)


def of_driver(kind: DriverKind) -> Meaning | None:
    """Give what a driver line means; None for the ones that only help to read others."""
    name = _DRIVER.get(kind)
    return by_catalogue(name) if name else None


def of_nic(kind: NicKind) -> Meaning | None:
    """Give what a network driver's line means; None for the ones that only help to read others."""
    name = _NIC.get(kind)
    return by_catalogue(name) if name else None


def of_system(line: SystemLine) -> Meaning:
    """Give what a line about the machine around the GPUs means."""
    of_adapter = line.driver not in {"", "nvidia"}
    return by_catalogue(_NIC_PCIE[line.kind] if of_adapter else _SYSTEM[line.kind])


def of_switch(kind: SxidKind) -> Meaning | None:
    """Give what an SXid line means; None for continuation lines, which belong to their head."""
    name = _SWITCH.get(kind)
    return by_catalogue(name) if name else None


def of_recovery_action(number: int, text: str) -> Meaning | None:
    """Give what the driver's recovery action asks for; None when it asks for nothing (any more).

    The text rules, since numbers were added from driver to driver; the number decides where the text is another.
    """
    word = text.lower()
    if word not in _RECOVERY_TEXTS and not word and number < len(_RECOVERY_NUMBERS):
        word = _RECOVERY_NUMBERS[number]
    if word not in _RECOVERY_TEXTS:
        return by_catalogue("GpuRecoveryActionUnknown")
    name = _RECOVERY_TEXTS[word]
    return by_catalogue(name) if name else None


def of_xid(line: XidLine, driver_branch: int | None) -> Meaning:
    """Give what an Xid line means by itself."""
    if line.xid == _RECOVERY_CHANGED:
        action = recovery_action(line.message)
        if action is None:
            return by_catalogue("GpuRecoveryActionUnknown")
        return of_recovery_action(*action) or by_catalogue(NOTHING_ASKED)
    own = _own_meaning(line, driver_branch)
    if line.caused_by is None:
        return own
    cause = _of_rule(for_xid(line.caused_by))
    # 45 says nothing of its own; any other line may ask for more than the cause that it names.
    return cause if line.xid == _PREEMPTIVE_REMOVAL or cause.recovery.rank > own.recovery.rank else own


def _own_meaning(line: XidLine, driver_branch: int | None) -> Meaning:
    if line.xid in _NVLINK5:
        return _of_nvlink5(line, driver_branch)
    rule = for_xid(line.xid)
    if line.xid == _NVLINK_ERROR:
        return _of_nvlink4(rule, line.message)
    if line.xid == _GRAPHICS_EXCEPTION:
        return _of_rule(rule, unit=processor_unit(line.message))
    if line.gpu_instance is not None:
        return _of_rule(rule, unit=_instance(line))
    return _of_rule(rule)


def _of_rule(rule: XidRule, link: int | None = None, unit: str = "") -> Meaning:
    return Meaning(fault=rule.fault, verdict=rule.verdict, recovery=rule.recovery, link=link, unit=unit)


def _of_nvlink4(rule: XidRule, message: str) -> Meaning:
    link = nvlink_number(message)
    match decode_nvlink4(message):
        case Nvlink4.NOTED:
            return by_catalogue("NvlinkNoted", link)
        case Nvlink4.PARITY if link is not None:
            return by_catalogue("NvlinkWorn", link)  # by its rate: fewer are an error of the link
        case Nvlink4.SECONDARY:
            return _of_rule(rule, link=link, unit=SECONDARY)
        case _:
            return _of_rule(rule, link=link)


def _instance(line: XidLine) -> str:
    compute = "" if line.compute_instance is None else f", CI {line.compute_instance}"
    return f"GI {line.gpu_instance}{compute}"


def _of_nvlink5(line: XidLine, driver_branch: int | None) -> Meaning:
    registers = nvlink_registers(line.message)
    if registers is None:
        return by_catalogue("NvlinkUndecoded")
    link = registers.link if registers.link >= 0 else None
    decoded = decode(line.xid or 0, registers.intr_info, registers.error_status, driver_branch)
    return by_catalogue("NvlinkUndecoded" if decoded is None else _nvlink_fault(decoded), link)


def _nvlink_fault(decoded: Decoded) -> str:
    if decoded.action == "IGNORE":
        return "NvlinkNoted"
    if decoded.action == "XID_154_EVAL":
        return "NvlinkPacketLoss"
    if decoded.blames_peer:
        return "NvlinkPeerFault"
    return "NvlinkDown" if decoded.reason is not None else "NvlinkError"


UNREADABLE: Final = by_catalogue(UNKNOWN_XID)
