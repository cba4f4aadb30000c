"""The driver's Xid lines, in all forms that it prints or has printed.

The pattern is anchored at the line's start and the number must stand directly behind the address: a process name sits
inside the line and may hold commas, colons and numbers of its own.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from fleetwell.health.pci_address import PCI, normalise_pci

_XID: Final = re.compile(
    rf"NVRM: Xid \((?:PCI:)?({PCI})(?: GPU-I:(\d{{1,3}})(?: GPU-CI:(\d{{1,3}}))?)?\): (\d{{1,6}})(?:,\s?(.*)|\s*)\Z",
    re.DOTALL,
)
# A program may call itself "NVRM: Xid (PCI:" (a name has at most 15 bytes) and then crash or run out of memory: the
# kernel starts its own lines with that name. Such a line says nothing about a GPU.
_PROGRAM_NAMED_SO: Final = re.compile(
    r"NVRM: Xid.{0,6}?(?:\[\d{1,10}\]|\(\d{1,10}\)|/\d{1,10}|: [a-z]| invoked )", re.DOTALL
)
_PROCESS: Final = re.compile(
    r"pid=(\d{1,10}|'?<unknown>'?)(?:, name=(.{0,15}?|'?<unknown>'?))?(?:,\s(.*)|\s*)\Z", re.DOTALL
)
_CAUSED_BY: Final = re.compile(r" caused by previous Xid (\d{1,6})\s{0,4}\Z")
_UNIT: Final = re.compile(r"\(?GPC (\d{1,3}), TPC (\d{1,3})")
_RECOVERY: Final = re.compile(
    r"GPU recovery action changed from 0x[0-9a-fA-F]{1,8} \([^()]{0,64}\) to (0x[0-9a-fA-F]{1,8}) \(([^()]{0,64})\)"
)
_NVLINK5: Final = re.compile(
    r"\b([A-Z][A-Z0-9_]{2,31}(?: Degraded)?)\s{1,8}(Fatal|Non-?fatal|Link Fatal)\s{1,8}"
    r"XC(\d{1,2})\s{1,4}i(\d{1,3})\s{1,4}Link\s{1,4}(-?\d{1,3})\s{1,4}"
    r"\((0x[0-9a-fA-F]{1,8})[ ,]{1,3}(0x[0-9a-fA-F]{1,8})"
)
_NVLINK: Final = re.compile(r"NVLink: .{0,80}?\blink (\d{1,3})\(")


class XidLine(msgspec.Struct, frozen=True, kw_only=True):
    """One Xid line. A line that begins like one and cannot be read has neither number nor address."""

    xid: int | None
    pci: str | None
    message: str = ""
    pid: int | None = None
    process: str = ""
    caused_by: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class NvlinkRegisters(msgspec.Struct, frozen=True):
    """The parts of an NVLink line of Xid 144 to 150."""

    unit: str
    fatal: bool
    link: int
    intr_info: int
    error_status: int


def parse_xid(text: str) -> XidLine | None:
    """Read a line that begins as the driver's Xid lines do; None for any other line."""
    match = _XID.match(text)
    if match is None:
        if not text.startswith("NVRM: Xid") or _PROGRAM_NAMED_SO.match(text):
            return None
        return XidLine(xid=None, pci=None, message=text)
    message = match[5] or ""
    pid: int | None = None
    process = ""
    if (owner := _PROCESS.match(message)) is not None:
        pid = int(owner[1]) if owner[1].isdigit() else None
        process = owner[2] or ""
        message = owner[3] or ""
    caused_by = _CAUSED_BY.search(message)
    return XidLine(
        xid=int(match[4]),
        pci=normalise_pci(match[1]),
        message=message,
        pid=pid,
        process=process,
        caused_by=int(caused_by[1]) if caused_by else None,
        gpu_instance=int(match[2]) if match[2] else None,
        compute_instance=int(match[3]) if match[3] else None,
    )


def processor_unit(message: str) -> str:
    """Give the place of a graphics exception, ``GPC 7, TPC 7``; empty where the line has none."""
    match = _UNIT.search(message)
    return f"GPC {int(match[1])}, TPC {int(match[2])}" if match else ""


def recovery_action(message: str) -> tuple[int, str] | None:
    """Give number and text of what a 154 line changed *to*; None where it has no such part."""
    match = _RECOVERY.search(message)
    return (int(match[1], 16), match[2].strip()) if match else None


def nvlink_registers(message: str) -> NvlinkRegisters | None:
    """Give the registers of a line of Xid 144 to 150; None where it has none."""
    match = _NVLINK5.search(message)
    if match is None:
        return None
    return NvlinkRegisters(match[1], match[2].endswith("Fatal"), int(match[5]), int(match[6], 16), int(match[7], 16))


def nvlink_number(message: str) -> int | None:
    """Give the link of an Xid 74 line; None where it names none."""
    match = _NVLINK.search(message)
    return int(match[1]) if match else None
