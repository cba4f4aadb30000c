"""Lines of the EFA, mlx5 and Ethernet drivers that say that an adapter or its link is not well."""

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
    ADAPTER_INIT_FAILED = "the adapter could not be brought up"
    RESOURCES = "an EFA resource ran out"
    HEALTH_COMPROMISED = "the adapter reports a fault of its own"
    COMMAND_TIMEOUT = "the adapter's firmware did not answer a command"
    TRANSMIT_TIMEOUT = "the adapter did not send what it was given"
    OVERHEATING = "the adapter's module is too hot"
    POWER_LIMITED = "the adapter's slot gives less power than it wants"
    MODULE_PLUGGED = "a cable or module is there"
    MODULE_UNPLUGGED = "a cable or module is not there"
    LINK_DOWN = "the link is down"


class NicLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a network driver."""

    kind: NicKind
    pci: str | None
    """PCI address with its function, where the driver printed one."""
    device: str | None
    """InfiniBand device or interface name, where the driver printed one."""
    unit: str = ""
    """Module of the adapter that it is about."""


_IF: Final = r"[\w.@-]{1,32}"
_NET: Final = r"(?:eth|en|ib)\w{1,28}"
_EFA: Final = re.compile(rf"(?:efa (?P<pci>{PCI})|infiniband (?P<device>[\w.-]{{1,63}})): (?P<message>.{{0,500}})")
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
_MLX5: Final = re.compile(rf"mlx5_core (?P<pci>{PCI})(?: (?P<device>{_IF}))?: (?P<message>.{{0,500}})")
_MLX5_MESSAGES: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            NicKind.HEALTH_COMPROMISED,
            r".{0,200}?(?:device's health compromised - reached miss count|unrecoverable hardware error)",
        ),
        (NicKind.COMMAND_TIMEOUT, r".{0,200}?\btimeout\. Will cause a leak of a command resource"),
        (NicKind.TRANSMIT_TIMEOUT, r"TX timeout detected\s*\Z"),
        (NicKind.ADAPTER_INIT_FAILED, r".{0,60}?mlx5_(?:load|init)_one failed with error code -\d"),
        (NicKind.ADAPTER_INIT_FAILED, r".{0,60}?Firmware over \d{1,8} MS in (?:pre-)?initializing state, aborting"),
        (NicKind.TRANSMIT_TIMEOUT, r"NETDEV WATCHDOG: .{0,60}?transmit queue \d{1,6} timed out"),
        (
            NicKind.OVERHEATING,
            r".{0,60}?Port module event(?:\[error\])?: module (?P<unit>\d{1,4}), (?:Cable error, )?High Temp",
        ),
        (NicKind.OVERHEATING, r".{0,60}?High temperature on sensors? "),
        (NicKind.POWER_LIMITED, r".{0,60}?Detected insufficient power on the PCIe slot"),
        (NicKind.MODULE_UNPLUGGED, r".{0,60}?Port module event: module (?P<unit>\d{1,4}), Cable unplugged"),
        (NicKind.MODULE_PLUGGED, r".{0,60}?Port module event: module (?P<unit>\d{1,4}), Cable plugged"),
        (NicKind.LINK_DOWN, r"Link down\s*\Z"),
    )
)
_WATCHDOG: Final = re.compile(
    rf"NETDEV WATCHDOG: (?P<device>{_IF}) \((?P<driver>[\w-]{{1,32}})\): transmit queue \d{{1,6}} timed out"
)
_CARRIER: Final = re.compile(
    rf"(?:(?P<driver>[a-z][\w-]{{1,31}}) (?P<pci>{PCI})(?: (?P<device>{_IF}))?: "
    rf"(?:(?:[a-z]\w{{1,15}}: )?(?P<again>{_NET}):? )?|"
    rf"(?:e1000e?|igb|ixgbe|i40e|tg3|bnx2x?): (?P<old>{_NET}):? |"
    rf"(?P<bond>{_IF}): \(slave (?P<slave>{_IF})\): link status definitely down|(?P<plain>{_NET}): )"
    r"(?(bond)|(?:NIC )?Link (?:is )?[Dd]own\b)"
)


def parse_nic(text: str) -> NicLine | None:
    """Read a line of a network driver; None for lines that say nothing bad and for any other line."""
    if text.startswith(("efa ", "infiniband ")):
        return _driver(_EFA.match(text), _EFA_MESSAGES)
    if text.startswith("mlx5_core "):
        return _driver(_MLX5.match(text), _MLX5_MESSAGES)
    if text.startswith("NETDEV WATCHDOG: "):
        match = _WATCHDOG.match(text)
        return NicLine(kind=NicKind.TRANSMIT_TIMEOUT, pci=None, device=match["device"]) if match else None
    if "ink " not in text[:120]:
        return None
    match = _CARRIER.match(text)
    if match is None:
        return None
    return NicLine(
        kind=NicKind.LINK_DOWN,
        pci=_lower(match["pci"]),
        device=match["device"] or match["again"] or match["slave"] or match["old"] or match["plain"],
    )


def _driver(match: re.Match[str] | None, messages: tuple[tuple[NicKind, re.Pattern[str]], ...]) -> NicLine | None:
    if match is None:
        return None
    for kind, pattern in messages:
        found = pattern.match(match["message"])
        if found is not None:
            unit = found.groupdict().get("unit") or ""
            return NicLine(kind=kind, pci=_lower(match["pci"]), device=match["device"], unit=unit)
    return None


def _lower(pci: str | None) -> str | None:
    return pci.lower() if pci else None
