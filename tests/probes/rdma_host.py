"""A host's sysfs with RDMA adapters, as small as a test wants it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fleetwell.probes import infiniband, nic_counters, nic_tree, sysfs
from fleetwell.probes.nic_memory import NicMemory
from fleetwell.probes.report import Report

CX7 = ("0x15b3", "0x1021")
EFA = ("0x1d0f", "0xefa2")


class RdmaHost:
    """A host root to which adapters are added, and looks at it a minute apart."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.memory_file = root / "nics.json"
        self.now = 1000.0
        self.boot = "boot-1"
        self.told: dict[str, object] = {}

    def put(self, path: str, value: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")

    def rails(self, count: int, rate: str = "400 Gb/sec (4X NDR)") -> None:
        """Add equal InfiniBand adapters ``mlx5_0`` …, of 400 Gb/s on x16 of the fifth generation."""
        for number in range(count):
            self.adapter(f"mlx5_{number}", f"0000:{number + 16:02x}:00.0", rate=rate)

    def adapter(
        self,
        name: str,
        pci: str,
        *,
        ids: tuple[str, str] = CX7,
        driver: str = "mlx5_core",
        rate: str = "400 Gb/sec (4X NDR)",
        layer: str = "InfiniBand",
    ) -> None:
        device = f"sys/devices/pci0000:00/{pci}"
        self.put(f"{device}/vendor", ids[0])
        self.put(f"{device}/device", ids[1])
        self.link(pci, "32.0 GT/s PCIe", 16)
        (self.root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        (self.root / device / "driver").symlink_to(self.root / f"sys/bus/pci/drivers/{driver}")
        bus = self.root / "sys/bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / pci).symlink_to(self.root / device)
        folder = self.root / "sys/class/infiniband" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(self.root / device)
        self.port(name, rate=rate, link_layer=layer, state="4: ACTIVE", phys_state="5: LinkUp")

    def second_device(self, name: str, pci: str, *, rate: str) -> None:
        """Add an RDMA device that has no PCI function of its own: it lies below another's, or nowhere."""
        folder = self.root / "sys/class/infiniband" / name
        folder.mkdir(parents=True)
        if pci:
            (folder / "device").symlink_to(self.root / f"sys/devices/pci0000:00/{pci}")
        self.port(name, rate=rate, link_layer="Ethernet", state="4: ACTIVE", phys_state="5: LinkUp")

    def remove(self, path: str) -> None:
        """Remove a link, a file or a folder."""
        where = self.root / path
        if where.is_symlink() or where.is_file():
            where.unlink()
        else:
            shutil.rmtree(where)

    def port(self, name: str, **attributes: object) -> None:
        for attribute, value in attributes.items():
            self.put(f"sys/class/infiniband/{name}/ports/1/{attribute}", value)

    def count(self, name: str, where: str = "ports/1/counters", /, **counters: int) -> None:
        for counter, value in counters.items():
            self.put(f"sys/class/infiniband/{name}/{where}/{counter}", value)

    def link(self, pci: str, speed: str, width: int, most: int = 16) -> None:
        device = f"sys/devices/pci0000:00/{pci}"
        self.put(f"{device}/current_link_speed", speed)
        self.put(f"{device}/current_link_width", width)
        self.put(f"{device}/max_link_speed", "32.0 GT/s PCIe")
        self.put(f"{device}/max_link_width", most)

    def look(self, after: float = 60.0) -> tuple[Report, Report]:
        """Look as the child does, so many seconds after the look before."""
        self.now += after
        memory = NicMemory(self.memory_file, "serial", self.boot, self.now)
        return sysfs.networks(self.root, self.told, memory)

    def faults(self, after: float = 60.0) -> list[tuple[str, str]]:
        """Look, and give fault and component of everything that was found."""
        return [(one["fault"], one["component"]) for one in self.observations(after)]

    def observations(self, after: float = 60.0) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for report in self.look(after):
            found += json.loads(report.encode())["observations"]
        return found

    def once(self) -> list[tuple[str, str]]:
        """Look without any memory, as ``fleetwell diagnose`` does."""
        report = infiniband.look(self.root, None, {})
        return [(one["fault"], one["component"]) for one in json.loads(report.encode())["observations"]]


def adapters(host: RdmaHost) -> list[nic_tree.Adapter]:
    return nic_tree.adapters(host.root, nic_counters.wanted(nic_counters.limits()))
