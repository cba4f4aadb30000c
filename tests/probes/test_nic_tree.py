"""Trees as they really come: copied, cut down, or of a machine without modules."""

from __future__ import annotations

import pytest

from probes.rdma_host import RdmaHost, adapters

NONSENSE = ["", "²", "-1", "9" * 4000, "32.0.1 GT/s", "1.2.3 Gb/sec (4X)", "400 Gb/sec (99999999X NDR)", "N/A (no PMA)"]


def test_a_copied_tree_in_which_links_became_folders_is_read_by_what_the_device_says(host: RdmaHost) -> None:
    folder = "sys/class/infiniband/rdmap79s0"
    host.put(f"{folder}/device/vendor", "0x1d0f")
    host.put(f"{folder}/device/uevent", "DRIVER=efa\nPCI_SLOT_NAME=0000:4f:00.0")
    host.put(f"{folder}/ports/1/state", "4: ACTIVE")
    host.put("sys/bus/pci/devices/0000:4f:00.0/vendor", "0x1d0f")
    host.put("sys/bus/pci/devices/0000:4f:00.0/device", "0xefa2")
    (adapter,) = adapters(host)
    assert (adapter.is_efa, adapter.pci, adapter.driver) == (True, "0000:4f:00.0", "efa")
    assert host.faults() == []


def test_a_tree_with_hardly_anything_in_it_is_read_too(host: RdmaHost) -> None:
    for number in range(4):
        host.put(f"sys/class/infiniband/mlx5_{number}/ports/1/state", "4: ACTIVE")
        host.put(f"sys/class/infiniband/mlx5_{number}/ports/1/rate", "400 Gb/sec (4X NDR)")
    assert [adapter.pci for adapter in adapters(host)] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert host.once() == []
    host.port("mlx5_3", state="1: DOWN")
    assert host.once() == [("NicDown", "nic/mlx5_3")]
    host.port("mlx5_3", state="4: ACTIVE", rate="200 Gb/sec (4X HDR)")
    assert host.once() == [("NicDegraded", "nic/mlx5_3")]


def test_interfaces_without_addresses_are_not_held_against_the_bus(host: RdmaHost) -> None:
    host.put("sys/class/infiniband/rdmap79s0/device/vendor", "0x1d0f")
    host.put("sys/bus/pci/devices/0000:4f:00.0/vendor", "0x1d0f")
    host.put("sys/bus/pci/devices/0000:4f:00.0/device", "0xefa2")
    host.put("sys/module/efa/initstate", "live")
    assert host.faults() == []


def test_a_width_that_no_link_has_is_none(host: RdmaHost) -> None:
    host.rails(2)
    host.link("0000:11:00.0", "Unknown", 63)
    assert host.faults() == []


def test_storage_cards_with_two_ports_are_not_compared_with_rails_of_the_same_chip(host: RdmaHost) -> None:
    host.rails(8)
    for function in (0, 1):
        host.adapter(f"mlx5_{8 + function}", f"0000:80:00.{function}", rate="200 Gb/sec (4X HDR)")
    assert host.once() == []


@pytest.mark.parametrize("said", NONSENSE)
def test_an_attribute_that_makes_no_sense_says_nothing_and_ends_nothing(host: RdmaHost, said: str) -> None:
    host.rails(4)
    host.count("mlx5_1", symbol_error=0)
    card = "sys/devices/pci0000:00/0000:11:00.0"
    for path in (
        *(f"{card}/{name}" for name in ("current_link_speed", "current_link_width", "max_link_speed", "config")),
        "sys/devices/pci0000:00/max_link_width",
        "sys/class/infiniband/mlx5_1/ports/1/rate",
        "sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error",
        "sys/module/ib_core/parameters/netns_mode",
    ):
        host.put(path, said)
    host.put("sys/module/ib_uverbs/initstate", "live")
    assert host.once() == []
    assert host.faults() == []
