"""Lines of the EFA and mlx5 network drivers that say that an adapter is not well."""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from fleetwell.health.pci_address import PCI


class NicKind(enum.Enum):
    """What such a line says."""

    ADMIN_QUEUE_DEAD = "the EFA device does not answer its driver"
    INIT_FAILED = "the EFA device could not be brought up"
    RESOURCES = "an EFA resource ran out"
    HEALTH_COMPROMISED = "the adapter reports a fault of its own"


class NicLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a network driver."""

    kind: NicKind
    pci: str | None
    """PCI address with its function, where the driver printed one."""
    device: str | None
    """InfiniBand device name, where the driver printed one."""


_EFA: Final = re.compile(rf"(?:efa (?P<pci>{PCI})|infiniband (?P<device>[\w.-]{{1,63}})): (?P<message>.{{0,500}})")
_MLX5: Final = re.compile(rf"mlx5_core (?P<pci>{PCI}): (?P<message>.{{0,500}})")
_EFA_MESSAGES: Final = (
    (
        NicKind.ADMIN_QUEUE_DEAD,
        re.compile(r"The device (?:didn't send any completion for|sent a completion but the driver)"),
    ),
    (NicKind.ADMIN_QUEUE_DEAD, re.compile(r"Admin queue is closed")),
    (
        NicKind.INIT_FAILED,
        re.compile(r"Reading register timed ?out|Device isn't ready, abort com init|Reset indication didn't"),
    ),
    (NicKind.INIT_FAILED, re.compile(r"BARs unavailable|EFA device init failed")),
    (
        NicKind.RESOURCES,
        re.compile(r"Failed to process command \w{1,40} .{0,60}\berr -12\b|Failed to allocate \w{1,20} ?\[-12\]"),
    ),
)
_MLX5_MESSAGES: Final = re.compile(
    r".{0,200}?(?:device's health compromised - reached miss count|unrecoverable hardware error)"
)


def parse_nic(text: str) -> NicLine | None:
    """Read a line of the EFA or mlx5 driver; None for lines that say nothing bad and for any other line."""
    if text.startswith(("efa ", "infiniband ")):
        match = _EFA.match(text)
        if match is None:
            return None
        message = match["message"]
        kind = next((kind for kind, pattern in _EFA_MESSAGES if pattern.match(message)), None)
        return NicLine(kind=kind, pci=_lower(match["pci"]), device=match["device"]) if kind else None
    if text.startswith("mlx5_core "):
        match = _MLX5.match(text)
        if match is not None and _MLX5_MESSAGES.match(match["message"]):
            return NicLine(kind=NicKind.HEALTH_COMPROMISED, pci=_lower(match["pci"]), device=None)
    return None


def _lower(pci: str | None) -> str | None:
    return pci.lower() if pci else None
