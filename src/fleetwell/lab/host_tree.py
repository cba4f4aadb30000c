"""The files of a virtual node that its kernel would show under /sys, /proc and /dev.

Devices live under ``sys/devices`` and are reached through relative links, as in the real sysfs, so a reader that
resolves links stays inside the tree.
"""

import shutil
from pathlib import Path

from fleetwell.lab import infiniband_tree
from fleetwell.lab.machine import Machine, Nic
from fleetwell.lab.nvml_state import GpuState, NodeState, numa_node
from fleetwell.lab.sysfs import device_folder, link, put

_NVIDIA = 0x10DE
_CLASS_3D = 0x030200
_CLASS_BRIDGE = 0x068000
_CLASS_ETHERNET = 0x020000
_CLASS_INFINIBAND = 0x020700
# PCI generation → what the kernel prints for its speed.
_SPEEDS = {
    1: "2.5 GT/s PCIe",
    2: "5.0 GT/s PCIe",
    3: "8.0 GT/s PCIe",
    4: "16.0 GT/s PCIe",
    5: "32.0 GT/s PCIe",
    6: "64.0 GT/s PCIe",
}
# What a read of a device that no longer answers comes to: all ones, and the kernel's words for such a link.
_DEAD_CONFIG = b"\xff" * 64
_DEAD_SPEED = "Unknown"
_DEAD_WIDTH = 63
_NIC_WIDTH = 8


def build(root: Path, state: NodeState) -> None:
    """Write the whole tree as after a boot, counters at their beginning; dev/kmsg is not of this tree."""
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/infiniband").mkdir(parents=True, exist_ok=True)
    (root / "dev").mkdir(parents=True, exist_ok=True)
    for module in _modules(state.machine):
        put(root / f"sys/module/{module}/initstate", "live")
    _identity(root, state)
    for address in state.machine.nvswitch.pci:
        device_id = state.machine.nvswitch.device_id
        _pci(root, address, (_NVIDIA, device_id, _CLASS_BRIDGE), driver="nvidia-nvswitch", numa=0)
    for number, nic in enumerate(state.machine.nics):
        if nic.name not in state.missing_nics:
            _nic(root, state.machine, nic, number)
    refresh(root, state)


def refresh(root: Path, state: NodeState) -> None:
    """Bring the devices in line with the state: those that went are removed, those that came are written."""
    model = state.machine.gpu
    for index, gpu in enumerate(state.gpus):
        node = root / f"dev/nvidia{index}"
        if gpu.lasting.absent:
            _remove(root, model.pci[index])
            node.unlink(missing_ok=True)
            continue
        node.touch()
        _gpu(root, state.machine, index, gpu)
    for number, nic in enumerate(state.machine.nics):
        if nic.name in state.missing_nics:
            infiniband_tree.remove(root, nic)
            _remove(root, nic.pci)
        elif not device_folder(root, nic.pci).exists():
            _nic(root, state.machine, nic, number)
        if nic.name in state.nics and nic.name not in state.missing_nics:
            changed = state.nics[nic.name]
            put(device_folder(root, nic.pci) / "current_link_width", changed.pcie_width or _NIC_WIDTH)
            infiniband_tree.show(device_folder(root, nic.pci), nic, changed)


def _modules(machine: Machine) -> list[str]:
    drivers = {nic.driver for nic in machine.nics}
    return ["nvidia", "nvidia_uvm", *sorted(drivers), *(["ib_core", "ib_uverbs"] if drivers else [])]


def _identity(root: Path, state: NodeState) -> None:
    machine = state.machine
    dmi = {
        "product_name": machine.instance_type,
        "sys_vendor": machine.dmi_vendor,
        "product_serial": state.dmi_serial,
        "product_uuid": state.dmi_uuid,
        "board_serial": state.dmi_serial,
    }
    for name, value in dmi.items():
        put(root / "sys/class/dmi/id" / name, value)
    put(root / "proc/sys/kernel/random/boot_id", state.boot_id)
    # proc/uptime is the uptime at the end of the boot and stands still; btime in proc/stat is right at all times.
    put(root / "proc/uptime", "0.00 0.00")
    put(root / "proc/stat", f"btime {int(state.booted_at)}")
    version = machine.driver_version
    put(root / "sys/module/nvidia/version", version)
    put(
        root / "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build",
    )
    for name in ("nvidiactl", "nvidia-uvm"):
        (root / "dev" / name).touch()


def _pci(root: Path, address: str, ids: tuple[int, int, int], *, driver: str, numa: int) -> Path:
    vendor, device, device_class = ids
    folder = device_folder(root, address)
    put(folder / "vendor", f"{vendor:#06x}")
    put(folder / "device", f"{device:#06x}")
    put(folder / "class", f"{device_class:#08x}")
    put(folder / "numa_node", numa)
    config = vendor.to_bytes(2, "little") + device.to_bytes(2, "little")
    (folder / "config").write_bytes(config.ljust(64, b"\0"))
    driver_folder = root / "sys/bus/pci/drivers" / driver
    driver_folder.mkdir(parents=True, exist_ok=True)
    link(folder / "driver", driver_folder)
    link(root / "sys/bus/pci/devices" / address, folder)
    return folder


def _gpu(root: Path, machine: Machine, index: int, gpu: GpuState) -> None:
    model = machine.gpu
    folder = device_folder(root, model.pci[index])
    ids = (_NVIDIA, model.device_id, _CLASS_3D)
    if not folder.exists():
        _pci(root, model.pci[index], ids, driver="nvidia", numa=numa_node(model, index))
        put(folder / "max_link_speed", _SPEEDS[model.pcie_gen])
        put(folder / "max_link_width", model.pcie_width)
    if gpu.volatile.lost:
        (folder / "config").write_bytes(_DEAD_CONFIG)
        put(folder / "current_link_speed", _DEAD_SPEED)
        put(folder / "current_link_width", _DEAD_WIDTH)
        return
    config = _NVIDIA.to_bytes(2, "little") + model.device_id.to_bytes(2, "little")
    (folder / "config").write_bytes(config.ljust(64, b"\0"))
    put(folder / "current_link_speed", _SPEEDS[gpu.volatile.pcie_gen or model.pcie_gen])
    put(folder / "current_link_width", gpu.volatile.pcie_width or model.pcie_width)


def _nic(root: Path, machine: Machine, nic: Nic, number: int) -> None:
    device_class = _CLASS_ETHERNET if nic.driver == "efa" else _CLASS_INFINIBAND
    numa = int(len(machine.nics) > 1 and number >= len(machine.nics) // 2)
    folder = _pci(root, nic.pci, (nic.vendor_id, nic.device_id, device_class), driver=nic.driver, numa=numa)
    for kind in ("current", "max"):
        put(folder / f"{kind}_link_speed", _SPEEDS[4])
        put(folder / f"{kind}_link_width", _NIC_WIDTH)
    infiniband_tree.write(root, nic, number, folder)


def _remove(root: Path, address: str) -> None:
    (root / "sys/bus/pci/devices" / address).unlink(missing_ok=True)
    shutil.rmtree(device_folder(root, address), ignore_errors=True)
