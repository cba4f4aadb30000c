"""What the kernel says about the machine around the GPUs: host memory, storage, PCIe, processes that ran out of memory.

A line counts only where the kernel's own words say so. A program's name (15 bytes that it chooses) stands in many of
these lines, so each pattern is anchored at the line's start, and what stands inside brackets behind a name is not read.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Final

import msgspec

from fleetwell.health.pci_address import PCI, normalise_pci

_MCE_UNCORRECTED_BIT: Final = 61


class SystemKind(enum.Enum):
    """What such a line says."""

    PCIE_FATAL = "uncorrected PCIe error that took the link down"
    PCIE_NON_FATAL = "uncorrected PCIe error of one transaction"
    PCIE_CORRECTED = "corrected PCIe error"
    PCIE_UNRECOVERED = "the device could not be brought back after a PCIe error"
    PCIE_SILENT = "the device does not answer where every device does, in its configuration space"
    MEMORY_UNCORRECTED = "uncorrected error of host memory or processor"
    GPU_PROGRAM_OUT_OF_MEMORY = "a program of the GPU stack was killed for memory"
    STORAGE_TIMEOUT = "a disk did not answer in time"
    STORAGE_ERROR = "a disk gave an error"
    STORAGE_GONE = "a disk was given up"
    STORAGE_READ_ONLY = "a file system was made read-only or shut down"


class SystemLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line about the machine around the GPUs."""

    kind: SystemKind
    driver: str = ""
    """Kernel driver of the device, for PCIe lines."""
    pci: str | None = None
    pid: int | None = None
    unit: str = ""
    """Disk, file system or program that it names."""


# --- PCIe advanced error reporting ---------------------------------------------------------------------------------

_AER: Final = re.compile(
    rf"(?P<driver>nvidia|mlx5_core|efa) (?P<pci>{PCI}): (?:AER: )?"
    r"(?:PCIe Bus Error: severity=(?P<severity>Corrected|Correctable|Uncorrected|Uncorrectable)"
    r"(?: \((?P<fatal>Fatal|Non-Fatal)\))?|(?P<lost>AER: )?(?P<failed>device recovery failed|can't recover \()|"
    r"(?P<silent>(?:Unable to|can't) change power state from \w{2,7} to D\w{1,4}[ ,(]{1,2}"
    r"(?:device|config space) inacc))"
)


def parse_pcie(text: str) -> SystemLine | None:
    """Read a PCIe error of a GPU or a network adapter; None for those of other devices and for any other line."""
    match = _AER.match(text)
    if match is None:
        return None
    if match["silent"] is not None:
        kind = SystemKind.PCIE_SILENT
    elif match["severity"] is None:
        kind = SystemKind.PCIE_UNRECOVERED
    elif match["severity"].startswith("Correct"):
        kind = SystemKind.PCIE_CORRECTED
    else:
        kind = SystemKind.PCIE_NON_FATAL if match["fatal"] == "Non-Fatal" else SystemKind.PCIE_FATAL
    pci = match["pci"].lower()
    driver = match["driver"]
    return SystemLine(kind=kind, driver=driver, pci=normalise_pci(pci) if driver == "nvidia" else pci)


# --- host memory and processor -------------------------------------------------------------------------------------

_EDAC: Final = re.compile(r"EDAC (?P<unit>MC\d{1,3}): \d{1,6} UE ")
_MCE: Final = re.compile(
    r"(?:mce: )?\[Hardware Error\]: (?:CPU (?P<cpu>\d{1,5}): Machine Check(?: Exception)?: [0-9a-f]{1,4} "
    r"Bank (?P<bank>\d{1,3}): (?P<status>[0-9a-f]{16})\b|(?P<amd>Uncorrected, |System Fatal error))"
)
_MCE_USE: Final = re.compile(r"mce: Uncorrected hardware memory error in (?:user|kernel)-access")
_APEI: Final = re.compile(r"\{\d{1,6}\}\[Hardware Error\]: event severity: fatal")


_POISONED: Final = re.compile(
    r"Memory failure: 0x[0-9a-f]{1,16}: "
    r"(?:recovery action for |already hardware poisoned|Sending SIGBUS to |Killing |unhandlable page)"
)
"""The kernel takes a page out of use: whether a program lost data or not, the memory failed beyond correction."""


def parse_memory(text: str) -> SystemLine | None:
    """Read an uncorrected error of host memory or a processor; None for corrected ones and for any other line."""
    if (edac := _EDAC.match(text)) is not None:
        return SystemLine(kind=SystemKind.MEMORY_UNCORRECTED, unit=edac["unit"])
    if (mce := _MCE.match(text)) is not None:
        if mce["amd"] is None and not int(mce["status"], 16) >> _MCE_UNCORRECTED_BIT & 1:
            return None
        unit = f"CPU {mce['cpu']}, bank {mce['bank']}" if mce["cpu"] else ""
        return SystemLine(kind=SystemKind.MEMORY_UNCORRECTED, unit=unit)
    if _MCE_USE.match(text) or _APEI.match(text) or _POISONED.match(text):
        return SystemLine(kind=SystemKind.MEMORY_UNCORRECTED)
    return None


# --- programs killed for memory ------------------------------------------------------------------------------------

_KILLED: Final = re.compile(
    r"(?:Memory cgroup out|Out) of memory(?: \([a-z_]{1,32}\))?: Kill(?:ed)? process "
    r"(?P<pid>\d{1,10}),? \((?P<name>.{1,16})\)[, ]",
    re.DOTALL,
)
_GPU_PROGRAMS: Final = re.compile(
    r"python|pt_main_thread|pt_data_worker|torchrun|ray::|ray_|tritonserver|VLLM|vllm|sglang|trtllm|nccl|all_reduce|"
    r"mpirun|deepspeed|jax|nvidia|nv-|dcgm|cuda"
)


def parse_killed(text: str) -> SystemLine | None:
    """Read the death of a program of the GPU stack for memory; None for other programs and for any other line."""
    match = _KILLED.match(text)
    if match is None or not _GPU_PROGRAMS.match(match["name"]):
        return None
    return SystemLine(kind=SystemKind.GPU_PROGRAM_OUT_OF_MEMORY, pid=int(match["pid"]), unit=match["name"])


# --- storage -------------------------------------------------------------------------------------------------------

_DISK: Final = r"(?:nvme\d{1,3}(?:c\d{1,3})?n\d{1,4}|sd[a-z]{1,3}|vd[a-z]{1,2}|xvd[a-z]{1,2}|md\d{1,4}|dm-\d{1,5})"
_PART: Final = rf"{_DISK}(?:p?\d{{1,4}})?"
_MEDIUM: Final = r"(?:I/O|critical (?:medium|target))"
_STORAGE: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (SystemKind.STORAGE_TIMEOUT, r"nvme (?P<unit>nvme\d{1,3}): I/O .{1,80}?\btimeout, "),
        (SystemKind.STORAGE_TIMEOUT, r"nvme (?P<unit>nvme\d{1,3}): controller is down; will reset"),
        (
            SystemKind.STORAGE_GONE,
            r"nvme (?P<unit>nvme\d{1,3}): (?:Removing after probe failure|Disabling device after reset failure)",
        ),
        (SystemKind.STORAGE_GONE, rf"md/raid\d{{1,2}}:\w{{1,16}}: Disk failure on (?P<unit>{_PART}), disabling"),
        (
            SystemKind.STORAGE_ERROR,
            rf"(?:blk_update_request: |print_req_error: )?{_MEDIUM} error, dev (?P<unit>{_DISK}), sector \d",
        ),
        (SystemKind.STORAGE_ERROR, rf"Buffer I/O error on dev(?:ice)? (?P<unit>{_PART}), logical block \d"),
        (SystemKind.STORAGE_READ_ONLY, r"EXT4-fs \((?P<unit>[\w.-]{1,32})\): Remounting filesystem read-only"),
        (
            SystemKind.STORAGE_READ_ONLY,
            r"XFS \((?P<unit>[\w.-]{1,32})\): (?:[Ff]ilesystem has been shut down|.{0,60}Shutting down filesystem)",
        ),
        (SystemKind.STORAGE_READ_ONLY, r"BTRFS \w{1,10} \(device (?P<unit>[\w.-]{1,32})[^)]{0,24}\): forced readonly"),
        (SystemKind.STORAGE_READ_ONLY, r"Aborting journal on device (?P<unit>[\w.-]{1,32})\."),
    )
)


def parse_storage(text: str) -> SystemLine | None:
    """Read a fault of a disk or a file system; None for any other line."""
    for kind, pattern in _STORAGE:
        match = pattern.match(text)
        if match is not None:
            return SystemLine(kind=kind, unit=match["unit"])
    return None


_BY_START: Final[dict[str, Callable[[str], SystemLine | None]]] = {
    "nvid": parse_pcie,
    "mlx5": parse_pcie,
    "efa ": parse_pcie,
    "EDAC": parse_memory,
    "mce:": parse_memory,
    "[Har": parse_memory,
    "Out ": parse_killed,
    "Memo": lambda text: parse_killed(text) or parse_memory(text),
    "nvme": parse_storage,
    "md/r": parse_storage,
    "blk_": parse_storage,
    "prin": parse_storage,
    "I/O ": parse_storage,
    "crit": parse_storage,
    "Buff": parse_storage,
    "EXT4": parse_storage,
    "XFS ": parse_storage,
    "BTRF": parse_storage,
    "Abor": parse_storage,
}


def parse_system(text: str) -> SystemLine | None:
    """Read a line about the machine around the GPUs; None for any other line."""
    if text.startswith("{"):
        return parse_memory(text)
    reader = _BY_START.get(text[:4])
    return reader(text) if reader is not None else None
