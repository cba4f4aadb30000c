"""Reads the RDMA devices of a host out of sysfs: what they are, and how their ports and PCIe links stand.

It reads and does not judge. What is absent stays absent: a counter that a driver does not have is neither zero nor a
fault. Runs inside the child :mod:`fleetwell.probes.sysfs`, so it imports as little as it can.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from fleetwell.probes import pcie_link
from fleetwell.probes.attribute import first_bytes, text
from fleetwell.probes.pcie_link import PcieLink

CLASS = "sys/class/infiniband"
EFA_DRIVER = "efa"
AMAZON = "0x1d0f"
EFA_DEVICE_PREFIX = "0xefa"
"""EFA's PCI device numbers: 0xefa0 to 0xefa3 so far."""
ACTIVE = "ACTIVE"
ETHERNET = "Ethernet"
INFINIBAND = "InfiniBand"
GONE = b"\xff\xff\xff\xff"
SOFTWARE = ("rxe", "siw", "smi")
"""How devices without hardware of their own are named: soft RoCE and soft iWARP, which run over any network card, and
the management device of an InfiniBand adapter that has several planes."""

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec(?: \(([0-9]{1,2})X)?")
_SUBFUNCTION = re.compile(r"\.sf\.[0-9]+$")
_VIRTUAL = "/devices/virtual/"


class Port(NamedTuple):
    """One port of a device."""

    number: str
    state: str
    """``ACTIVE``, ``DOWN``, ``INIT`` …; empty where it cannot be read."""
    phys_state: str
    gbps: float
    lanes: int
    link_layer: str
    counters: dict[str, int]
    """Of ``counters`` and ``hw_counters``, those that were asked for and are there."""
    netdev: str = ""
    operstate: str = ""

    @property
    def is_up(self) -> bool:
        """Whether it carries traffic. EFA always says so, whatever is true."""
        return self.state == ACTIVE and self.operstate != "down"


class Adapter(NamedTuple):
    """One RDMA device."""

    name: str
    pci: str
    driver: str
    model: str
    """Vendor, device and subsystem numbers: equal adapters have equal ones."""
    ports: tuple[Port, ...]
    link: PcieLink
    counters: dict[str, int]
    """The device's own counters, those that were asked for and are there."""
    is_efa: bool
    answers: bool
    """Whether its registers can be read: those of a device that left the bus read as ones, the rest of sysfs stays."""
    is_physical: bool
    """Whether it is an adapter of its own: no virtual or sub-function of one that stands beside it, no device of
    software, no second device of one function."""

    @property
    def is_infiniband(self) -> bool:
        """Whether it is on an InfiniBand network, and not on Ethernet."""
        return any(port.link_layer == INFINIBAND for port in self.ports)

    @property
    def card(self) -> str:
        """What the functions of one card have in common."""
        return self.pci.rpartition(".")[0] or self.pci

    def key(self, port: Port) -> str:
        """Name a port by what stays when devices are numbered anew."""
        return f"{self.pci}/{port.number}"


def adapters(host_root: Path, counters: frozenset[str]) -> list[Adapter]:
    """Read every RDMA device.

    :param counters: which counters to read; there are dozens and each costs a read of the device.
    """
    folder = host_root / CLASS
    if not folder.is_dir():
        return []
    read = [_adapter(entry, counters) for entry in sorted(folder.iterdir()) if entry.is_dir()]
    return [_alone_on_its_function(adapter, read) for adapter in read]


def bound_driver(device: Path) -> str:
    """Tell which driver has a PCI device; ``?`` where one has it and a copied tree does not say which."""
    link = device / "driver"
    if link.is_symlink():
        return Path(os.path.realpath(link)).name
    return _said(device).get("DRIVER", "?" if link.is_dir() else "")


def _config(device: Path) -> bytes:
    try:
        return first_bytes(device / "config", len(GONE))
    except OSError:
        return b""


def _alone_on_its_function(adapter: Adapter, read: list[Adapter]) -> Adapter:
    """Of several devices on one PCI function one is the adapter."""
    beside = [other for other in read if other.pci == adapter.pci and other.is_physical]
    first = min(beside, key=lambda other: other.name, default=adapter)
    return adapter if not adapter.is_physical or adapter is first else adapter._replace(is_physical=False)


def _said(device: Path) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text(device / "uevent").splitlines())


def _adapter(entry: Path, counters: frozenset[str]) -> Adapter:
    device = entry / "device"
    real = Path(os.path.realpath(device))
    driver = bound_driver(device)
    vendor, number = text(device / "vendor"), text(device / "device")
    # In a copied tree links may have become folders: the device says by itself then where it is.
    address = real.name if _ADDRESS.fullmatch(real.name) else _said(device).get("PCI_SLOT_NAME", "")
    net = _netdevs(device)
    ports = entry / "ports"
    numbers = sorted(port.name for port in ports.iterdir()) if ports.is_dir() else []
    return Adapter(
        name=entry.name,
        pci=address or entry.name,
        driver=driver,
        model="/".join((vendor, number, text(device / "subsystem_device"))),
        ports=tuple(_port(ports / one, counters, net, index) for index, one in enumerate(numbers or ["1"])),
        link=pcie_link.read(real, has_slot=real.name == address),
        counters=_counters(entry / "hw_counters", counters),
        is_efa=driver == EFA_DRIVER or vendor == AMAZON,
        answers=_config(device) != GONE,
        is_physical=not (
            entry.name.startswith(SOFTWARE)
            or _VIRTUAL in os.path.realpath(entry)
            or _SUBFUNCTION.search(real.name)
            or is_virtual_function(device)
        ),
    )


def is_virtual_function(device: Path) -> bool:
    """Whether the physical function stands beside it; in a virtual machine it does not, and this one is the adapter."""
    return (device / "physfn").exists() or (device / "physfn").is_symlink()


def _netdevs(device: Path) -> list[Path]:
    net = device / "net"
    if not net.is_dir():
        return []
    # Which interface belongs to which port is told by dev_port; a bond or a VLAN has no entry here.
    return sorted(net.iterdir(), key=lambda one: (text(one / "dev_port"), one.name))


def _port(folder: Path, counters: frozenset[str], net: list[Path], index: int) -> Port:
    rate = _RATE.match(text(folder / "rate"))
    link_layer = text(folder / "link_layer")
    netdev = net[index] if link_layer == ETHERNET and index < len(net) else None
    seen = _counters(folder / "counters", counters) | _counters(folder / "hw_counters", counters)
    if netdev is not None:
        seen |= _counters(netdev, counters & {"carrier_changes"})
    return Port(
        number=folder.name,
        state=text(folder / "state").rpartition(": ")[2],
        phys_state=text(folder / "phys_state").rpartition(": ")[2],
        gbps=float(rate[1]) if rate else 0.0,
        lanes=int(rate[2] or 0) if rate else 0,
        link_layer=link_layer,
        counters=seen,
        netdev=netdev.name if netdev is not None else "",
        operstate=text(netdev / "operstate") if netdev is not None else "",
    )


def _counters(folder: Path, wanted: frozenset[str]) -> dict[str, int]:
    try:
        names = wanted.intersection(os.listdir(folder))  # noqa: PTH208 (names are wanted, and this is read for each port)
    except OSError:
        return {}
    found = {}
    for name in names:
        said = text(folder / name)
        if said.isdecimal():
            found[name] = int(said)
    return found
