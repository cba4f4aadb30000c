"""What the PCI bus says of the GPUs, without their driver: are they there, do they answer, how wide is the link.

Runs inside the child :mod:`fleetwell.probes.sysfs`.
"""

from __future__ import annotations

from pathlib import Path

from fleetwell.probes.report import Report

PROBE = "pci"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""VGA controller and 3D controller: data-centre GPUs are the latter."""
WIDEST = 32
"""Lanes that a link can have: a device that fell off the bus shows 63."""
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
    """Give the NVIDIA GPUs among the devices of a bus, by address."""
    return [
        device
        for device in sorted(folder.iterdir())
        if attribute(device, "vendor") == NVIDIA and attribute(device, "class")[:6] in GPU_CLASSES
    ]


def unnamed(address: str) -> str:
    """Name a GPU whose UUID is not known, as the kernel log's reader does: without the function number."""
    return f"pci-{address.partition('.')[0]}"


def attribute(device: Path, name: str) -> str:
    """Read one attribute of a device; empty when it cannot be read."""
    try:
        return (device / name).read_text(errors="replace").strip()
    except OSError:
        return ""


def _answers(seen: Report, component: str, device: Path) -> None:
    """Read the configuration space: a device that has fallen off the bus reads as ones (the other files are cached)."""
    try:
        with (device / "config").open("rb") as config:
            first = config.read(4)
    except OSError as error:
        seen.blind(f"pci: the configuration space of GPUs cannot be read ({error.strerror})")
        return
    if first == b"\xff\xff\xff\xff":
        said = f"the configuration space of {device.name} reads as ones: it does not answer on the bus"
        seen.fault("GpuFallenOffBus", component, said)


def _widths(seen: Report, components: dict[str, str], gpus: list[Path]) -> None:
    """Compare link widths: a riser or a virtual slot may rightly be narrow, but then it is so for all equal GPUs.

    The speed is not judged here, since an idle GPU lowers it by itself; NVML knows the power state (``nvml``).
    """
    widths: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for device in gpus:
        now, most = attribute(device, "current_link_width"), attribute(device, "max_link_width")
        if now.isdigit() and most.isdigit() and 0 < int(now) <= WIDEST:
            model = (attribute(device, "device"), attribute(device, "subsystem_device"))
            widths.setdefault(model, {})[device.name] = (int(now), int(most))
    for group in widths.values():
        widest = max(lanes for lanes, _ in group.values())
        for name, (lanes, most_lanes) in group.items():
            if lanes < most_lanes and lanes < widest:
                said = f"PCIe width x{lanes}; {name} can have x{most_lanes}, and an equal GPU beside it has x{widest}"
                seen.fault("PcieDegraded", components[name], said)


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
