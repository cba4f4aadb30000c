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
    BUS_LOSS_HEAD = "first of the records of a bus loss, or of a GPU that is not supported"
    UNSUPPORTED_TAIL = "second record of a GPU that the driver does not support"
    BUS_LOSS_TAIL = "last of the three records of a bus loss"
    GPU_LOST = "lost"
    INIT_FAILED = "initialisation failed"
    GSP_SILENT = "the system processor does not answer"
    RESET_REQUIRED = "reset required"
    API_MISMATCH = "versions differ"
    REBOOT_ASKED = "the driver asks for a reboot in words"
    LINK_MASK_STUCK = "link mask cannot be read"
    GPU_NAMED = "address and UUID"
    TASK_HUNG = "hung task of the GPU stack"
    OTHER_TASK_HUNG = "hung task of another program: its stack tells whether it hangs in the driver"
    DRIVER_FRAME = "stack frame inside the driver"
    OOPS = "the kernel stumbled: its stack tells whether in the driver"
    NIC_TASK_HUNG = "hung task of a network adapter's driver"
    NIC_FRAME = "stack frame inside a network adapter's driver"
    NIC_INSTRUCTION = "a processor stands inside a network adapter's driver"
    NCCL_CRASH = "crash in the collective library"


class DriverLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the driver, or of the kernel about the driver's users."""

    kind: DriverKind
    pci: str | None = None
    uuid: str | None = None
    pid: int | None = None
    unit: str = ""


_GPU: Final = rf"(?:GPU\d{{0,3}} ?(?:at )?(?:PCI:)?(?P<pci>{PCI})?:? ?)?"
_NVRM: Final = tuple(
    (word, kind, re.compile(pattern))
    for word, kind, pattern in (
        ("The NVIDIA", DriverKind.BUS_LOSS_HEAD, rf"NVRM: The NVIDIA GPU (?P<pci>{PCI})\s?(?:\(PCI ID|\Z)"),
        ("not supported by", DriverKind.UNSUPPORTED_TAIL, r"NVRM: (?:installed )?in this system is not supported by "),
        ("fallen off", DriverKind.BUS_LOSS_TAIL, r"NVRM: fallen off the bus and is not responding to commands"),
        (
            "GPU-",
            DriverKind.GPU_NAMED,
            rf"NVRM: GPU at (?:PCI:)?(?P<pci>{PCI}): (?P<uuid>GPU-[0-9a-f-]{{36}})\s*\Z",
        ),
        ("fallen off", DriverKind.FALLEN_OFF_BUS, rf"NVRM: {_GPU}GPU has fallen off the bus"),
        ("RmInit", DriverKind.INIT_FAILED, rf"NVRM: {_GPU}RmInitAdapter(?: failed!|: Cannot initialize)"),
        (
            "rm_init",
            DriverKind.INIT_FAILED,
            rf"NVRM: {_GPU}rm_init_adapter failed(?:.{{0,60}}minor number (?P<unit>\d{{1,4}}))?",
        ),
        ("BAR", DriverKind.INIT_FAILED, rf"NVRM: BAR\d is 0M @ 0x0 \(PCI:(?P<pci>{PCI})\)"),
        ("None of", DriverKind.INIT_FAILED, r"NVRM: None of the NVIDIA (?:devices|graphics adapters) were initialized"),
        ("0x0000000f", DriverKind.GPU_LOST, rf"NVRM: {_GPU}\w{{1,40}}: rpcSendMessage failed with status 0x0000000f\b"),
        (
            "global fatal",
            DriverKind.REBOOT_ASKED,
            rf"NVRM: {_GPU}nvGpuOpsReportFatalError: .{{0,80}}requiring os reboot",
        ),
        ("heartbeat", DriverKind.GSP_SILENT, rf"NVRM: {_GPU}.{{0,80}}?GSP RM heartbeat timed out"),
        ("API mism", DriverKind.API_MISMATCH, r"NVRM: API mismatch: "),
        (
            "knvlinkUp",
            DriverKind.LINK_MASK_STUCK,
            rf"NVRM: {_GPU}knvlinkUpdatePostRxDetLinkMask_IMPL: Failed ",
        ),
        ("[NV_ERR_RESET", DriverKind.RESET_REQUIRED, rf"NVRM: {_GPU}.{{0,400}}?\[NV_ERR_RESET_REQUIRED\]"),
        ("[NV_ERR_GPU_IS", DriverKind.GPU_LOST, rf"NVRM: {_GPU}.{{0,400}}?\[NV_ERR_GPU_IS_LOST\]"),
    )
)
_WITHOUT_COLON: Final = ("NVRM RmInitAdapter", "NVRM rm_init_adapter", "NVRM GPU 0")
"""How drivers 515 to 525 begin these lines."""
NVRM_WORDS: Final = tuple({word: None for word, _, _ in _NVRM})
"""One of these stands in every driver line without an Xid that says something."""

_SWITCH_MISMATCH: Final = "nvidia-nvswitch: Version mismatch, kernel version "
"""The fabric manager is of another version than the module."""
_GPU_TASK: Final = r"(?:nvidia|nv-|nvc:|nvsm|dcgm|UVM |irq/\d{1,5}-nvidia)"
_HUNG: Final = re.compile(
    r"INFO: task (?P<unit>.{1,24}):(?P<pid>\d{1,10}) blocked (?:in I/O wait )?for more than \d", re.DOTALL
)
_LOCKED: Final = re.compile(
    r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#\d{1,5} stuck for \d{1,9}s! "
    r"\[(?P<unit>.{1,24}):(?P<pid>\d{1,10})\]",
    re.DOTALL,
)
_LOCKUPS: Final = ("watchdog: BUG: soft", "BUG: soft lockup", "NMI watchdog: BUG: soft")
"""How kernels since 4.12, before 4.4, and between begin it."""
_OOPSES: Final = (
    "BUG: unable to handle ",
    "BUG: kernel NULL pointer",
    "Oops: ",
    "general protection fault, ",
    "general protection fault: ",
    "kernel BUG at ",
    "Unable to handle kernel ",
)
_BEGINS: Final = (*_OOPSES, _SWITCH_MISMATCH)
_OF_GPU_STACK: Final = re.compile(_GPU_TASK)
_OF_ADAPTER: Final = re.compile(r"mlx5|kworker/\S{1,12}[-+]mlx5")
_PLACE: Final = r"[\w.]{1,80}\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}"
_ADDRESS: Final = r"(?:\[<[0-9a-f]{8,16}>\]\s{0,2}){0,2}"
"""Kernels before 4.10 print it."""
_FRAME: Final = re.compile(
    rf"(?:(?: {{1,4}}|(?=\[<)|RIP: [0-9a-f]{{4}}:|IP: |pc : ?){_ADDRESS}\??\s{{0,4}}{_PLACE} "
    r"\[(?P<gpu>nvidia)(?:_\w{1,16})?[\] ]|"
    rf"(?: {{1,4}}|(?P<now>RIP: [0-9a-f]{{4}}:)){_PLACE} \[mlx5_(?:core|ib)[\] ])"
)
"""Of the adapters' drivers only what the kernel is sure of: a ``?`` is what lay on the stack before."""
_NCCL: Final = re.compile(
    r"(?:.{1,16}\[(?P<pid>\d{1,10})\]: segfault at |traps: .{1,16}\[(?P<trapped>\d{1,10})\] )"
    r".{1,200}? in libnccl(?:-net)?\.so",
    re.DOTALL,
)


def parse_driver(text: str) -> DriverLine | None:
    """Read a line about a GPU that carries no Xid; None for any other line."""
    if text.startswith(_WITHOUT_COLON):
        text = f"NVRM: {text[5:]}"
    if text.startswith("NVRM: "):
        for word, kind, pattern in _NVRM:
            if word in text and (match := pattern.match(text)) is not None:
                return _line(kind, match.groupdict())
    elif text.startswith(("INFO: task ", *_LOCKUPS)):
        return _stuck(text)
    elif text.startswith(_BEGINS):
        return DriverLine(kind=DriverKind.API_MISMATCH if text.startswith(_SWITCH_MISMATCH) else DriverKind.OOPS)
    elif text.startswith((" ", "RIP: ", "IP: ", "pc : ", "[<")):
        return _frame(text)
    if "libnccl" in text:
        match = _NCCL.match(text)
        return DriverLine(kind=DriverKind.NCCL_CRASH, pid=int(match[1] or match[2])) if match else None
    return None


def _stuck(text: str) -> DriverLine | None:
    match = _LOCKED.match(text) or _HUNG.match(text)
    if match is None:
        return None
    if _OF_GPU_STACK.match(match["unit"]):
        kind = DriverKind.TASK_HUNG
    else:
        kind = DriverKind.NIC_TASK_HUNG if _OF_ADAPTER.match(match["unit"]) else DriverKind.OTHER_TASK_HUNG
    return _line(kind, match.groupdict())


def _frame(text: str) -> DriverLine | None:
    match = _FRAME.match(text)
    if match is None:
        return None
    if match["gpu"]:
        return DriverLine(kind=DriverKind.DRIVER_FRAME)
    return DriverLine(kind=DriverKind.NIC_INSTRUCTION if match["now"] else DriverKind.NIC_FRAME)


def _line(kind: DriverKind, fields: dict[str, str | None]) -> DriverLine:
    pci, pid = fields.get("pci"), fields.get("pid")
    return DriverLine(
        kind=kind,
        pci=normalise_pci(pci) if pci else None,
        uuid=fields.get("uuid"),
        pid=int(pid) if pid else None,
        unit=fields.get("unit") or "",
    )
