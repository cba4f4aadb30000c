"""What the bus says of GPUs, without their driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetwell.probes import pci


class Bus:
    """A PCI bus to which GPUs are added, each below a port of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def gpu(self, bus: int, lanes: int = 16, slot: int = 16, function: int = 0) -> Path:
        port = self.root / f"sys/devices/pci0000:00/0000:00:{bus:02x}.0"
        address = f"0000:{bus:02x}:00.{function}"
        device = port / address
        device.mkdir(parents=True)
        if slot:
            (port / "max_link_width").write_text(f"{slot}\n")
        for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
            (device / name).write_text(f"{value}\n")
        (device / "config").write_bytes(bytes.fromhex("de103023"))
        (device / "current_link_width").write_text(f"{lanes}\n")
        (device / "max_link_width").write_text("16\n")
        folder = self.root / pci.DEVICES
        folder.mkdir(parents=True, exist_ok=True)
        (folder / address).symlink_to(device)
        return device

    def faults(self, expected: int | None = None) -> list[tuple[str, str]]:
        seen = json.loads(pci.look(self.root, expected, {}).encode())
        return [(one["fault"], one["component"]) for one in seen["observations"]]


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path)


def test_a_lone_gpu_on_fewer_lanes_than_it_and_its_slot_have_is_degraded(bus: Bus) -> None:
    bus.gpu(1, lanes=8)
    assert bus.faults() == [("PcieDegraded", "gpu/pci-0000:01:00")]


def test_a_slot_of_fewer_lanes_degrades_nothing_even_beside_wider_ones(bus: Bus) -> None:
    bus.gpu(1)
    bus.gpu(2, lanes=8, slot=8)
    assert bus.faults() == []


@pytest.mark.parametrize("slot", [0, 1, 32])
def test_where_the_slots_say_nothing_that_can_be_true_the_neighbours_decide(bus: Bus, slot: int) -> None:
    bus.gpu(1, slot=slot)
    bus.gpu(2, lanes=8, slot=slot)
    assert bus.faults() == [("PcieDegraded", "gpu/pci-0000:02:00")]


@pytest.mark.parametrize("slot", [0, 1, 32])
def test_equal_gpus_on_equally_few_lanes_in_made_up_slots_were_built_so(bus: Bus, slot: int) -> None:
    bus.gpu(1, lanes=8, slot=slot)
    bus.gpu(2, lanes=8, slot=slot)
    assert bus.faults() == []


def test_a_virtual_function_is_no_gpu_whatever_its_registers_say(bus: Bus) -> None:
    bus.gpu(1)
    virtual = bus.gpu(1, function=4)
    (virtual / "config").write_bytes(b"\xff\xff\xff\xff")
    assert bus.faults() == [("GpuFallenOffBus", "gpu/pci-0000:01:00")]
    (virtual / "physfn").symlink_to("../0000:01:00.0")
    assert bus.faults(expected=1) == []
    assert bus.faults(expected=2) == [("GpuMissing", "host")]
