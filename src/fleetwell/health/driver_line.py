"""Lines about GPUs that carry no Xid: driver messages, hung tasks of the GPU stack, crashes in libnccl."""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from fleetwell.health.pci_address import PCI, normalise_pci


class DriverKind(enum.Enum):
    """What such a line says."""

    FALLEN_OFF_BUS = "fallen off the bus"
    BUS_LOSS_HEAD = "first of the three records of a bus loss"
    BUS_LOSS_TAIL = "last of the three records of a bus loss"
    GPU_LOST = "lost"
    INIT_FAILED = "initialisation failed"
    RESET_REQUIRED = "reset required"
    API_MISMATCH = "versions differ"
    LINK_MASK_STUCK = "link mask cannot be read"
    GPU_NAMED = "address and UUID"
    TASK_HUNG = "hung task"
    NCCL_CRASH = "crash in the collective library"


class DriverLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the driver, or of the kernel about the driver's users."""

    kind: DriverKind
    pci: str | None = None
    uuid: str | None = None
    pid: int | None = None
    unit: str = ""


_GPU: Final = rf"(?:GPU\d{{0,3}} ?(?:at PCI:)?(?P<pci>{PCI})?:? ?)?"
_NVRM: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (DriverKind.BUS_LOSS_HEAD, rf"NVRM: The NVIDIA GPU (?P<pci>{PCI})\s*\Z"),
        (DriverKind.BUS_LOSS_TAIL, r"NVRM: fallen off the bus and is not responding to commands"),
        (DriverKind.GPU_NAMED, rf"NVRM: GPU at (?:PCI:)?(?P<pci>{PCI}): (?P<uuid>GPU-[0-9a-f-]{{36}})\s*\Z"),
        (DriverKind.FALLEN_OFF_BUS, rf"NVRM: {_GPU}GPU has fallen off the bus"),
        (DriverKind.INIT_FAILED, rf"NVRM: {_GPU}RmInitAdapter failed!"),
        (DriverKind.INIT_FAILED, rf"NVRM: {_GPU}rm_init_adapter failed(?:.{{0,60}}minor number (?P<unit>\d{{1,4}}))?"),
        (DriverKind.API_MISMATCH, r"NVRM: API mismatch: "),
        (DriverKind.LINK_MASK_STUCK, rf"NVRM: {_GPU}knvlinkUpdatePostRxDetLinkMask_IMPL: Failed "),
        (DriverKind.RESET_REQUIRED, rf"NVRM: {_GPU}.{{0,400}}?\[NV_ERR_RESET_REQUIRED\]"),
        (DriverKind.GPU_LOST, rf"NVRM: {_GPU}.{{0,400}}?\[NV_ERR_GPU_IS_LOST\]"),
    )
)
_HUNG: Final = re.compile(
    r"INFO: task (?P<unit>(?:nvidia|nv-|nvsm|dcgm|irq/\d{1,5}-nvidia)[^:]{0,60}):(?P<pid>\d{1,10})"
    r" blocked for more than \d"
)
_NCCL: Final = re.compile(r".{1,16}\[(?P<pid>\d{1,10})\]: segfault at .{1,200}? in libnccl\.so", re.DOTALL)


def parse_driver(text: str) -> DriverLine | None:
    """Read a line about a GPU that carries no Xid; None for any other line."""
    if text.startswith("NVRM: "):
        for kind, pattern in _NVRM:
            match = pattern.match(text)
            if match is not None:
                return _line(kind, match.groupdict())
    elif text.startswith("INFO: task "):
        match = _HUNG.match(text)
        return _line(DriverKind.TASK_HUNG, match.groupdict()) if match else None
    elif "]: segfault at " in text[:48]:
        match = _NCCL.match(text)
        return _line(DriverKind.NCCL_CRASH, match.groupdict()) if match else None
    return None


def _line(kind: DriverKind, fields: dict[str, str | None]) -> DriverLine:
    pci, pid = fields.get("pci"), fields.get("pid")
    return DriverLine(
        kind=kind,
        pci=normalise_pci(pci) if pci else None,
        uuid=fields.get("uuid"),
        pid=int(pid) if pid else None,
        unit=fields.get("unit") or "",
    )
