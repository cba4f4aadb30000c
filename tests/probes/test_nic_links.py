"""An adapter that is up and slower than it should be."""

from __future__ import annotations

import pytest

from probes.rdma_host import RdmaHost

SLOW = [("NicDegraded", "nic/mlx5_3")]


def test_equal_adapters_at_equal_rates_are_well(host: RdmaHost) -> None:
    host.rails(8)
    assert host.faults() == []
    assert host.once() == []


@pytest.mark.parametrize("rate", ["200 Gb/sec (4X HDR)", "200 Gb/sec (2X NDR)", "100 Gb/sec (1X NDR)"])
def test_a_rate_below_the_neighbours_is_a_fault_of_its_own(host: RdmaHost, rate: str) -> None:
    host.rails(8)
    host.port("mlx5_3", rate=rate)
    assert host.faults() == SLOW
    assert host.once() == SLOW


@pytest.mark.parametrize(("speed", "width"), [("32.0 GT/s PCIe", 8), ("16.0 GT/s PCIe", 16)])
def test_a_pcie_link_below_the_neighbours_is_one_too(host: RdmaHost, speed: str, width: int) -> None:
    host.rails(8)
    host.link("0000:13:00.0", speed, width)
    (seen,) = host.observations()
    assert (seen["fault"], seen["component"]) == SLOW[0]
    assert "an equal adapter beside it has 32 GT/s x16" in seen["evidence"]
    assert host.once() == SLOW


def test_adapters_of_other_models_are_not_compared(host: RdmaHost) -> None:
    host.rails(4)
    host.adapter("mlx5_9", "0000:90:00.0", ids=("0x15b3", "0x101d"), rate="100 Gb/sec (4X EDR)", layer="Ethernet")
    host.link("0000:90:00.0", "16.0 GT/s PCIe", 16)
    assert host.faults() == []


def test_a_group_that_is_equally_slow_was_built_so(host: RdmaHost) -> None:
    host.rails(8)
    assert host.faults() == []
    for number in range(8):
        host.port(f"mlx5_{number}", rate="200 Gb/sec (4X HDR)")
        host.link(f"0000:{number + 16:02x}:00.0", "16.0 GT/s PCIe", 16)
    assert host.faults() == []  # Another switch, and no adapter's fault.
    assert host.faults() == []


def test_a_lone_adapter_is_compared_with_what_it_had_even_after_a_boot(host: RdmaHost) -> None:
    host.rails(1)
    assert host.faults() == []
    host.port("mlx5_0", rate="200 Gb/sec (4X HDR)")
    host.boot = "boot-2"
    assert host.faults() == [("NicDegraded", "nic/mlx5_0")]
    assert host.once() == []


def test_a_lone_adapter_on_half_its_lanes_cannot_bring_what_its_port_brings(host: RdmaHost) -> None:
    host.rails(1)
    host.link("0000:10:00.0", "32.0 GT/s PCIe", 8)
    assert host.once() == [("NicDegraded", "nic/mlx5_0")]
    host.port("mlx5_0", rate="200 Gb/sec (4X HDR)")
    assert host.once() == []  # x8 is enough for it: a slot may be so.


def test_a_link_below_what_both_ends_can_have_is_a_fault_whatever_the_neighbours_have(host: RdmaHost) -> None:
    host.rails(2)
    for pci in ("0000:10:00.0", "0000:11:00.0"):
        host.link(pci, "16.0 GT/s PCIe", 16)
    assert host.once() == []
    host.put("sys/devices/pci0000:00/max_link_speed", "16.0 GT/s PCIe")
    host.put("sys/devices/pci0000:00/max_link_width", 16)
    assert host.once() == []
    host.put("sys/devices/pci0000:00/max_link_speed", "32.0 GT/s PCIe")
    assert [fault for fault, _ in host.once()] == ["NicDegraded", "NicDegraded"]


def test_the_rate_that_the_operator_names_must_be_reached(host: RdmaHost) -> None:
    host.rails(2, rate="200 Gb/sec (4X HDR)")
    assert host.faults() == []
    host.told = {"infiniband_gbps": 400}
    assert len(host.faults()) == 2


def test_efa_interfaces_are_compared_too(host: RdmaHost) -> None:
    for number in range(4):
        host.adapter(
            f"rdmap{number}s0",
            f"0000:{number + 32:02x}:00.0",
            ids=("0x1d0f", "0xefa3"),
            driver="efa",
            rate="200 Gb/sec (4X HDR)",
            layer="Unspecified",
        )
    assert host.faults() == []
    host.port("rdmap2s0", rate="100 Gb/sec (4X EDR)")
    assert host.faults() == [("NicDegraded", "nic/rdmap2s0")]


def test_the_rate_that_must_be_is_the_rails_and_not_the_front_ends(host: RdmaHost) -> None:
    host.rails(8)
    host.adapter("mlx5_an0", "0000:40:00.0", ids=("0x15b3", "0x101a"), layer="Ethernet", rate="40 Gb/sec (4X QDR)")
    host.told = {"infiniband_gbps": 400}
    assert host.faults() == []
    host.port("mlx5_3", rate="200 Gb/sec (2X NDR)")
    assert host.faults() == SLOW


def test_on_ethernet_alone_the_kind_that_reaches_the_rate_is_bound_by_it(host: RdmaHost) -> None:
    for number in range(8):
        host.adapter(f"mlx5_{number}", f"0000:{number + 16:02x}:00.0", layer="Ethernet")
    host.adapter("mlx5_8", "0000:40:00.0", ids=("0x15b3", "0x101d"), layer="Ethernet", rate="100 Gb/sec (4X EDR)")
    host.told = {"infiniband_gbps": 400}
    assert host.faults() == []
    for number in range(8):
        host.port(f"mlx5_{number}", rate="200 Gb/sec (4X HDR)")
    assert len(host.faults()) == 8


def test_equal_boards_beyond_those_that_were_asked_for_may_be_on_a_slower_network(host: RdmaHost) -> None:
    host.rails(10)
    for name in ("mlx5_8", "mlx5_9"):
        host.port(name, rate="200 Gb/sec (4X HDR)")
    assert len(host.once()) == 2
    host.told = {"expected_infiniband": 8, "infiniband_up": 8, "infiniband_gbps": 400}
    assert host.faults() == []
    host.port("mlx5_0", rate="200 Gb/sec (4X HDR)")
    assert ("NicDegraded", "nic/mlx5_0") in host.faults()


@pytest.mark.parametrize("rate", ["50 Gb/sec (1X HDR)", "10 Gb/sec (4X SDR)", "10 Gb/sec (4X)"])
def test_what_no_sound_infiniband_link_shows_is_a_fault_without_any_neighbour(host: RdmaHost, rate: str) -> None:
    host.rails(1, rate=rate)
    assert host.once() == [("NicDegraded", "nic/mlx5_0")]
    host.port("mlx5_0", link_layer="Ethernet")
    assert host.once() == []  # There one lane is a form like others.


def test_an_equal_adapter_in_a_slot_of_fewer_lanes_is_as_well_as_it_can_be(host: RdmaHost) -> None:
    host.rails(4)
    host.link("0000:13:00.0", "32.0 GT/s PCIe", 8)
    assert host.once() == SLOW
    host.put("sys/devices/pci0000:00/max_link_speed", "32.0 GT/s PCIe")
    host.put("sys/devices/pci0000:00/max_link_width", 8)
    assert host.once() == SLOW  # Others have more than that: it is made up.
    for pci in ("0000:10:00.0", "0000:11:00.0", "0000:12:00.0"):
        host.link(pci, "32.0 GT/s PCIe", 8)
    assert host.once() == []
    host.put("sys/devices/pci0000:00/max_link_width", 32)
    assert host.once() == []  # No slot has x32.
    host.put("sys/devices/pci0000:00/max_link_width", 16)
    assert len(host.once()) == 4


def test_boards_beyond_a_whole_set_for_the_gpus_are_for_something_else(host: RdmaHost) -> None:
    host.rails(10)
    for number in (8, 9):
        host.port(f"mlx5_{number}", rate="200 Gb/sec (4X HDR)")
        host.link(f"0000:{number + 16:02x}:00.0", "32.0 GT/s PCIe", 8)
    slow = [("NicDegraded", "nic/mlx5_8"), ("NicDegraded", "nic/mlx5_9")]
    assert sorted(set(host.faults())) == slow
    host.told = {"expected": 8}
    assert host.faults() == []
    host.port("mlx5_0", rate="200 Gb/sec (4X HDR)")
    assert ("NicDegraded", "nic/mlx5_0") in host.faults()  # Seven are no whole set.


def test_where_there_is_one_gpu_no_number_of_rails_is_a_whole_set(host: RdmaHost) -> None:
    host.rails(2)
    host.port("mlx5_1", rate="200 Gb/sec (4X HDR)")
    host.told = {"expected": 1}
    assert host.faults() == [("NicDegraded", "nic/mlx5_1")]
