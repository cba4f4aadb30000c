"""Network adapters that are on the PCI bus and have no RDMA device.

Most of them rightly have none: given to a virtual machine, bonded to another, moved into the network namespace of a
pod, or used as a plain network card. One that its driver could not start, or that was torn down, is lost to the jobs,
and no list of RDMA devices shows it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fleetwell.probes.attribute import text
from fleetwell.probes.nic_tree import AMAZON, EFA_DEVICE_PREFIX, bound_driver, is_virtual_function

DEVICES = "sys/bus/pci/devices"
MELLANOX = "0x15b3"
NETWORK_CLASSES = ("0x0200", "0x0207")
"""Ethernet and InfiniBand controllers: adapters of the same maker have other functions beside those."""
NETNS_MODE = "sys/module/ib_core/parameters/netns_mode"
"""N where RDMA devices belong to one network namespace each, and those of pods are not seen from the host."""


class Idle(NamedTuple):
    """A function without an RDMA device."""

    address: str
    driver: str
    """Empty where none has it."""
    lives: bool
    """Whether its driver made anything of it: a network interface, or parts for other drivers."""


def efa(host_root: Path, bound: set[str]) -> list[Idle]:
    """Give the EFA devices without an interface."""
    return [
        _idle(device)
        for device in _others(host_root, bound, AMAZON)
        if text(device / "device").startswith(EFA_DEVICE_PREFIX)
    ]


def mellanox(host_root: Path, bound: set[str]) -> list[Idle]:
    """Give the ConnectX and BlueField functions without an RDMA device, virtual ones left out."""
    return [
        _idle(device)
        for device in _others(host_root, bound, MELLANOX)
        if text(device / "class")[:6] in NETWORK_CLASSES and not is_virtual_function(device)
    ]


def are_of_one_namespace(host_root: Path) -> bool:
    """Whether RDMA devices can be where the host does not see them (``rdma system set netns exclusive``)."""
    return text(host_root / NETNS_MODE) == "N"


def _others(host_root: Path, bound: set[str], vendor: str) -> list[Path]:
    devices = host_root / DEVICES
    if not devices.is_dir():
        return []
    return [one for one in sorted(devices.iterdir()) if one.name not in bound and text(one / "vendor") == vendor]


def _idle(device: Path) -> Idle:
    net = device / "net"
    has_interface = net.is_dir() and any(net.iterdir())
    return Idle(device.name, bound_driver(device), has_interface or any(device.glob("*_core.*")))
