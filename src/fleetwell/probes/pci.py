"""What the PCI bus says of the GPUs, without their driver: are they there, do they answer, how wide is the link.

Runs inside the child :mod:`fleetwell.probes.sysfs`.
"""

from __future__ import annotations

from pathlib import Path

from fleetwell.probes import pcie_link
from fleetwell.probes.attribute import first_bytes, text
from fleetwell.probes.nic_tree import is_virtual_function
from fleetwell.probes.pcie_link import PcieLink
from fleetwell.probes.report import Report

PROBE = "pci"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""VGA controller and 3D controller: data-centre GPUs are the latter."""
DEVICES = "sys/bus/pci/devices"


def look(host_root: Path, expected: int | None, known: dict[str, str]) -> Report:
    """Read the bus.

    :param expected: how many GPUs the machine must have, where that is known.
    :param known: UUID → PCI address of the GPUs that this machine was seen to have.
    """
    seen = Report(PROBE)
    folder = host_root / DEVICES
    if not folder.is_dir():
        seen.absent(f"{folder} is not there")
        return seen
    gpus = gpu_devices(folder)
    if not gpus and not expected:
        seen.absent("no NVIDIA GPU on the PCI bus")
        return seen
    uuids = {pci: uuid for uuid, pci in known.items()}
    components = {device.name: f"gpu/{uuids.get(device.name) or unnamed(device.name)}" for device in gpus}
    seen.covers("host", *components.values())
    for device in gpus:
        seen.gpu(uuids.get(device.name, ""), device.name)
        _answers(seen, components[device.name], device)
    _widths(seen, components, gpus)
    _count(seen, expected, len(gpus), {uuid: pci for uuid, pci in known.items() if pci not in components})
    return seen


def gpu_devices(folder: Path) -> list[Path]:
    """Give the NVIDIA GPUs among the devices of a bus, by address.

    A virtual function of one that stands beside it is no GPU: it would stand for a missing one, and its registers begin
    with ones by the standard (SR-IOV: its numbers are those of the physical function).
    """
    return [
        device
        for device in sorted(folder.iterdir())
        if text(device / "vendor") == NVIDIA
        and text(device / "class")[:6] in GPU_CLASSES
        and not is_virtual_function(device)
    ]


def unnamed(address: str) -> str:
    """Name a GPU whose UUID is not known, as the kernel log's reader does: without the function number."""
    return f"pci-{address.partition('.')[0]}"


def _answers(seen: Report, component: str, device: Path) -> None:
    """Read the configuration space: a device that has fallen off the bus reads as ones (the other files are cached)."""
    try:
        first = first_bytes(device / "config", 4)
    except OSError as error:
        seen.blind(f"pci: the configuration space of GPUs cannot be read ({error.strerror})")
        return
    if first == b"\xff\xff\xff\xff":
        said = f"the configuration space of {device.name} reads as ones: it does not answer on the bus"
        seen.fault("GpuFallenOffBus", component, said)


def _widths(seen: Report, components: dict[str, str], gpus: list[Path]) -> None:
    """Compare link widths with what slots can have and equal GPUs have: a riser or a slot may rightly be narrow.

    The speed is not judged here, since an idle GPU lowers it by itself; NVML knows the power state (``nvml``).
    """
    groups: dict[tuple[str, str], dict[str, PcieLink]] = {}
    for device in gpus:
        real = device.resolve()
        link = pcie_link.read(real, has_slot=real.name == device.name and real.parent != device.parent.resolve())
        if link.lanes and link.can_lanes:
            model = (text(device / "device"), text(device / "subsystem_device"))
            groups.setdefault(model, {})[device.name] = link
    for group in groups.values():
        real_slots = all(link.fits_its_slot for link in group.values())
        widest = max(link.lanes for link in group.values())
        for name, link in group.items():
            said = _narrower(link if real_slots else link.without_slot(), widest)
            if said:
                said = f"PCIe width x{link.lanes}; {name} can have x{link.can_lanes}, and {said}"
                seen.fault("PcieDegraded", components[name], said)


def _narrower(link: PcieLink, widest: int) -> str:
    """Say what shows that a link should have more lanes."""
    if link.lanes >= link.can_lanes:
        return ""
    if link.slot_lanes:
        return f"its slot x{link.slot_lanes}" if link.lanes < link.slot_lanes else ""
    return f"an equal GPU beside it has x{widest}" if link.lanes < widest else ""


def _count(seen: Report, expected: int | None, found: int, gone: dict[str, str]) -> None:
    if expected is None or found >= expected:
        seen.covers(*(f"gpu/{uuid}" for uuid in gone))
        return
    said = f"{found} NVIDIA GPUs on the PCI bus of the {expected} that this machine must have"
    if len(gone) == expected - found:
        for uuid, pci in gone.items():
            seen.fault("GpuMissing", f"gpu/{uuid}", f"{said}; none at {pci}")
    else:
        seen.fault("GpuMissing", "host", said)
