"""EFA interfaces, told by PCI vendor or driver.

Never by counting ``/sys/class/infiniband``, where adapters of others stand too; and never by the port's state: the
driver always says ACTIVE and LinkUp, whatever is true. Runs inside the child :mod:`fleetwell.probes.sysfs`.
"""

from __future__ import annotations

import os
from pathlib import Path

from fleetwell.probes.pci import DEVICES, attribute
from fleetwell.probes.report import Report

PROBE = "efa"
AMAZON = "0x1d0f"
DRIVER = "efa"
CLASS = "sys/class/infiniband"
DEVICE_PREFIX = "0xefa"
"""EFA's PCI device numbers: 0xefa0 to 0xefa3 so far."""


def look(host_root: Path, expected: int | None, known: list[str]) -> Report:
    """Read sysfs.

    :param expected: how many EFA interfaces the machine must have, where that is known.
    :param known: names of the interfaces that this machine was seen to have.
    """
    seen = Report(PROBE)
    folder = host_root / CLASS
    found = _interfaces(folder) if folder.is_dir() else {}
    if not found and not expected:
        seen.absent("no EFA interface")
        return seen
    seen.covers("host")
    for name, pci in found.items():
        seen.nic(name, pci, DRIVER)
        seen.covers(f"nic/{name}")
    gone = [name for name in known if name not in found]
    if expected is None or len(found) >= expected:
        seen.covers(*(f"nic/{name}" for name in gone))
        return seen
    said = f"{len(found)} EFA interfaces of the {expected} that this machine must have"
    unbound = _without_driver(host_root / DEVICES, set(found.values()))
    if unbound:
        said += f"; on the bus without an interface: {', '.join(unbound[:4])}"
    if len(gone) == expected - len(found):
        for name in gone:
            seen.fault("EfaMissing", f"nic/{name}", f"{said}; {name} is not among them")
    else:
        seen.fault("EfaMissing", "host", said)
    return seen


def _interfaces(folder: Path) -> dict[str, str]:
    """Give name → PCI address."""
    found = {}
    for entry in sorted(folder.iterdir()):
        device = entry / "device"
        driver = Path(os.path.realpath(device / "driver")).name
        if attribute(device, "vendor") == AMAZON or driver == DRIVER:
            found[entry.name] = Path(os.path.realpath(device)).name
    return found


def _without_driver(devices: Path, bound: set[str]) -> list[str]:
    if not devices.is_dir():
        return []
    return [
        device.name
        for device in sorted(devices.iterdir())
        if device.name not in bound
        and attribute(device, "vendor") == AMAZON
        and attribute(device, "device").startswith(DEVICE_PREFIX)
    ]
