"""The NVSwitch driver's SXid lines. One event is a head line and some continuation lines: only heads count."""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from fleetwell.health.pci_address import PCI, normalise_pci

_SXID: Final = re.compile(
    rf"nvidia-nvswitch(\d{{1,4}}): SXid \((?:PCI:)?({PCI})\): (\d{{1,6}})(?:,\s?(.*)|\s*)\Z", re.DOTALL
)
_HEAD: Final = re.compile(r"(Fatal|Non-?fatal)\b,?\s?(?:Link (\d{1,3})\b)?", re.IGNORECASE)
_CONTINUATION: Final = re.compile(r"(?:Severity \d|Data \{)")


class SxidKind(enum.Enum):
    """What a line is to its event."""

    FATAL = "fatal"
    NON_FATAL = "non-fatal"
    CONTINUATION = "continuation"
    UNREADABLE = "unreadable"


class SxidLine(msgspec.Struct, frozen=True, kw_only=True):
    """One SXid line."""

    kind: SxidKind
    pci: str | None
    sxid: int | None
    link: int | None = None


def parse_sxid(text: str) -> SxidLine | None:
    """Read a line of the NVSwitch driver; None for lines that are no SXid."""
    match = _SXID.match(text)
    if match is None:
        # "nvidia-nvswitch" alone fills the 15 bytes of a program's name, so what follows cannot be a program's.
        unreadable = re.match(r"nvidia-nvswitch\d{0,4}: SXid", text)
        return SxidLine(kind=SxidKind.UNREADABLE, pci=None, sxid=None) if unreadable else None
    message = match[4] or ""
    pci, sxid = normalise_pci(match[2]), int(match[3])
    if _CONTINUATION.match(message):
        return SxidLine(kind=SxidKind.CONTINUATION, pci=pci, sxid=sxid)
    head = _HEAD.match(message)
    if head is None:
        return SxidLine(kind=SxidKind.UNREADABLE, pci=pci, sxid=sxid)
    kind = SxidKind.FATAL if head[1].lower() == "fatal" else SxidKind.NON_FATAL
    return SxidLine(kind=kind, pci=pci, sxid=sxid, link=int(head[2]) if head[2] else None)
