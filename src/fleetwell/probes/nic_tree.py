"""Reads the RDMA devices of a host out of sysfs: what they are, how their ports and their PCIe links stand.

It reads and does not judge. What is absent stays absent: a counter that a driver does not have is neither zero nor a
fault. Runs inside the child :mod:`fleetwell.probes.sysfs`, so it imports as little as it can.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

CLASS = "sys/class/infiniband"
EFA_DRIVER = "efa"
AMAZON = "0x1d0f"
EFA_DEVICE_PREFIX = "0xefa"
"""EFA's PCI device numbers: 0xefa0 to 0xefa3 so far."""
ACTIVE = "ACTIVE"
ETHERNET = "Ethernet"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE = re.compile(r"([0-9.]+) Gb/sec(?: \((\d+)X)?")
_SPEED = re.compile(r"([0-9.]+) GT/s")
_WIDEST = 32


class PcieLink(NamedTuple):
    """A device's link to the bus; 0 where sysfs does not say."""

    speed: float
    """GT/s of a lane."""
    lanes: int
    can_speed: float
    """What the device itself can have."""
    can_lanes: int
    slot_speed: float = 0.0
    """What the port above it can have; a virtual machine often does not see one."""
    slot_lanes: int = 0

    @property
    def gbps(self) -> float:
        """What the link carries, in Gb/s, the line code taken off."""
        code = 0.8 if self.speed < 8 else 128 / 130
        return self.speed * self.lanes * code

    def __str__(self) -> str:
        return f"{self.speed:g} GT/s x{self.lanes}"


class Port(NamedTuple):
    """One port of a device."""

    number: str
    state: str
    """``ACTIVE``, ``DOWN``, ``INIT`` …"""
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
    is_virtual_function: bool

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
    return [_adapter(entry, counters) for entry in sorted(folder.iterdir()) if entry.is_dir()]


def text(path: Path) -> str:
    """Read one attribute; empty when it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, 4096).decode(errors="replace").strip()  # A thousand of these make a look.
    except OSError:
        return ""
    finally:
        os.close(file)


def efa_on_bus(devices: Path) -> list[str]:
    """Give the PCI addresses of EFA devices, whether a driver has them or not."""
    if not devices.is_dir():
        return []
    return [
        device.name
        for device in sorted(devices.iterdir())
        if text(device / "vendor") == AMAZON and text(device / "device").startswith(EFA_DEVICE_PREFIX)
    ]


def _adapter(entry: Path, counters: frozenset[str]) -> Adapter:
    device = entry / "device"
    real = Path(os.path.realpath(device))
    # In a copied tree links may have become folders: the device says by itself then who and where it is.
    said = dict(line.partition("=")[::2] for line in text(device / "uevent").splitlines())
    linked = Path(os.path.realpath(device / "driver")).name if (device / "driver").is_symlink() else ""
    driver = linked or said.get("DRIVER", "")
    vendor, number = text(device / "vendor"), text(device / "device")
    address = real.name if _ADDRESS.fullmatch(real.name) else said.get("PCI_SLOT_NAME", "")
    net = _netdevs(device)
    ports = entry / "ports"
    numbers = sorted(port.name for port in ports.iterdir()) if ports.is_dir() else []
    return Adapter(
        name=entry.name,
        pci=address or entry.name,
        driver=driver,
        model="/".join((vendor, number, text(device / "subsystem_device"))),
        ports=tuple(_port(ports / one, counters, net, index) for index, one in enumerate(numbers)),
        link=_link(real, has_slot=real.name == address),
        counters=_counters(entry / "hw_counters", counters),
        is_efa=driver == EFA_DRIVER or vendor == AMAZON,
        is_virtual_function=(device / "physfn").exists(),
    )


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
        if said.isdigit():
            found[name] = int(said)
    return found


def _link(device: Path, *, has_slot: bool) -> PcieLink:
    slot = device.parent if has_slot else device / "none"
    return PcieLink(
        speed=_speed(text(device / "current_link_speed")),
        lanes=_lanes(text(device / "current_link_width")),
        can_speed=_speed(text(device / "max_link_speed")),
        can_lanes=_lanes(text(device / "max_link_width")),
        slot_speed=_speed(text(slot / "max_link_speed")),
        slot_lanes=_lanes(text(slot / "max_link_width")),
    )


def _speed(said: str) -> float:
    match = _SPEED.match(said)
    return float(match[1]) if match else 0.0


def _lanes(said: str) -> int:
    """Read a width; a device that fell off the bus shows 63, and a virtual one 0 or 255."""
    return int(said) if said.isdigit() and 0 < int(said) <= _WIDEST else 0
