"""Ports that are down, and ports that flap."""

from __future__ import annotations

import json

import pytest

from probes.rdma_host import RdmaHost


def cut(host: RdmaHost, name: str) -> None:
    host.port(name, state="1: DOWN", phys_state="2: Polling")


def mend(host: RdmaHost, name: str) -> None:
    host.port(name, state="4: ACTIVE", phys_state="5: LinkUp")


def test_a_port_that_fell_is_a_fault_after_four_minutes_and_not_before(host: RdmaHost) -> None:
    host.rails(1)
    assert host.faults() == []
    cut(host, "mlx5_0")
    assert [host.faults() for _ in range(4)] == [[], [], [], []]
    assert host.faults() == [("NicDown", "nic/mlx5_0")]
    mend(host, "mlx5_0")
    assert host.faults() == []


def test_a_look_that_stands_alone_cannot_wait(host: RdmaHost) -> None:
    host.rails(8)
    cut(host, "mlx5_5")
    assert host.once() == [("NicDown", "nic/mlx5_5")]


def test_a_disk_that_cannot_be_written_hides_no_port_that_is_down(host: RdmaHost) -> None:
    host.rails(8)
    cut(host, "mlx5_5")
    host.memory_file = host.root / "no" / "such" / "folder"
    _, report = host.look()
    said = json.loads(report.encode())
    assert [one["fault"] for one in said["observations"]] == ["NicDown"]
    assert "cannot be kept" in said["blind"][0]


def test_a_port_that_was_never_up_is_no_fault_but_shown(host: RdmaHost) -> None:
    host.rails(2)
    for name in ("mlx5_0", "mlx5_1"):
        cut(host, name)
    assert [host.faults(300) for _ in range(3)] == [[], [], []]
    blind = json.loads(host.look()[1].encode())["blind"]
    assert len(blind) == 2
    assert "was never seen up here" in blind[0]


def test_the_second_port_of_a_card_may_have_no_cable(host: RdmaHost) -> None:
    host.rails(8)
    host.adapter("mlx5_8", "0000:10:00.1")
    cut(host, "mlx5_8")
    assert host.once() == []


def test_the_second_port_must_be_up_where_nearly_all_equal_cards_have_it_up(host: RdmaHost) -> None:
    host.rails(8)
    for number in range(8):
        host.adapter(f"mlx5_{number + 8}", f"0000:{number + 16:02x}:00.1")
    cut(host, "mlx5_11")
    assert host.once() == [("NicDown", "nic/mlx5_11")]
    for number in range(8, 11):
        cut(host, f"mlx5_{number}")
    assert host.once() == []


def test_an_adapter_of_many_ports_is_compared_port_by_port(host: RdmaHost) -> None:
    host.rails(8)
    for number in range(8):
        for port in (2, 3):
            for name, value in (("state", "4: ACTIVE" if port == 2 else "1: DOWN"), ("link_layer", "InfiniBand")):
                host.put(f"sys/class/infiniband/mlx5_{number}/ports/{port}/{name}", value)
    host.told = {"expected_infiniband": 8, "infiniband_up": 8}
    assert host.once() == []
    assert host.faults() == []
    host.put("sys/class/infiniband/mlx5_4/ports/2/state", "1: DOWN")
    assert host.once() == [("NicDown", "nic/mlx5_4")]
    host.faults()
    assert host.faults(300) == [("NicDown", "nic/mlx5_4")]
    blind = json.loads(host.look()[1].encode())["blind"]
    assert len(blind) == 8  # One line for each adapter, however many ports it has.


def test_adapters_beside_the_rails_neither_stand_for_one_that_is_down_nor_are_blamed_for_it(host: RdmaHost) -> None:
    host.rails(8)
    for number, state in ((8, "4: ACTIVE"), (9, "1: DOWN")):
        host.adapter(f"mlx5_{number}", f"0000:{number + 48:02x}:00.0", ids=("0x15b3", "0x101b"))
        host.port(f"mlx5_{number}", state=state)
    cut(host, "mlx5_2")
    host.told = {"expected_infiniband": 8, "infiniband_up": 8}
    host.faults()
    assert host.faults(300) == [("NicDown", "nic/mlx5_2")]


def test_the_operator_may_say_how_many_must_be_up(host: RdmaHost) -> None:
    host.rails(3)
    cut(host, "mlx5_2")
    assert host.faults(300) == []
    host.told = {"infiniband_up": 3, "expected_infiniband": 3}
    assert host.faults(300) == []
    assert host.faults(300) == [("NicDown", "nic/mlx5_2")]
    host.told = {"infiniband_up": 2, "expected_infiniband": 2}
    assert host.faults(300) == []


def test_a_port_that_no_subnet_manager_has_set_up_is_down(host: RdmaHost) -> None:
    host.rails(1)
    host.faults()
    host.port("mlx5_0", state="2: INIT")
    host.faults(300)
    (seen,) = host.observations(300)
    assert seen["fault"] == "NicDown"
    assert "subnet manager" in seen["evidence"]


def test_a_roce_port_whose_interface_is_down_is_down(host: RdmaHost) -> None:
    host.adapter("mlx5_0", "0000:10:00.0", layer="Ethernet")
    host.put("sys/devices/pci0000:00/0000:10:00.0/net/eth2/operstate", "up")
    assert host.faults() == []
    host.put("sys/devices/pci0000:00/0000:10:00.0/net/eth2/operstate", "down")
    host.faults(300)
    (seen,) = host.observations(300)
    assert seen["fault"] == "NicDown"
    assert "eth2 down" in seen["evidence"]


@pytest.mark.parametrize(
    ("where", "counter", "of_one"), [("ports/1/counters", "link_downed", 1), ("device/net/eth2", "carrier_changes", 2)]
)
def test_three_flaps_that_nobody_looked_at_are_told_by_the_counters(
    host: RdmaHost, where: str, counter: str, of_one: int
) -> None:
    host.adapter("mlx5_0", "0000:10:00.0", layer="Ethernet")
    host.count("mlx5_0", where, **{counter: 7})
    host.faults()
    host.count("mlx5_0", where, **{counter: 7 + 2 * of_one})
    assert host.faults() == []
    assert host.faults(5 * 3600) == []
    host.count("mlx5_0", where, **{counter: 7 + 3 * of_one})
    assert host.faults() == [("NicFlapping", "nic/mlx5_0")]
    assert host.faults(3600) == [("NicFlapping", "nic/mlx5_0")]
    assert host.faults(8 * 3600) == []  # Two of them are older than twelve hours.


def test_an_interface_that_pods_have_in_turn_does_not_flap(host: RdmaHost) -> None:
    host.adapter("mlx5_0", "0000:10:00.0", layer="Ethernet")
    net = "sys/devices/pci0000:00/0000:10:00.0/net"
    for pod in range(6):
        host.put(f"{net}/eth2/operstate", "up")
        host.count("mlx5_0", "device/net/eth2", carrier_changes=4 * pod)
        host.count("mlx5_0", link_downed=2 * pod)
        assert host.faults() == []
        host.remove(f"{net}/eth2")
        host.count("mlx5_0", link_downed=2 * pod + 1)
        assert host.faults() == []
    host.put(f"{net}/eth2/operstate", "up")
    host.count("mlx5_0", "device/net/eth2", carrier_changes=100)
    host.count("mlx5_0", link_downed=100)
    assert host.faults() == []
    host.count("mlx5_0", "device/net/eth2", carrier_changes=106)
    assert host.faults() == [("NicFlapping", "nic/mlx5_0")]


def test_flaps_between_which_somebody_looked_count_once_each(host: RdmaHost) -> None:
    host.rails(1)
    downed = 0
    host.count("mlx5_0", link_downed=downed)
    host.faults()
    for _ in range(3):
        assert host.faults() == []
        cut(host, "mlx5_0")
        downed += 1
        host.count("mlx5_0", link_downed=downed)
        assert host.faults() == []
        mend(host, "mlx5_0")
    assert host.faults() == [("NicFlapping", "nic/mlx5_0")]


def test_a_boot_forgets_the_flaps(host: RdmaHost) -> None:
    host.rails(1)
    host.count("mlx5_0", link_downed=0)
    host.faults()
    host.count("mlx5_0", link_downed=5)
    assert host.faults() != []
    host.boot = "boot-2"
    assert host.faults() == []


def test_an_adapter_that_can_be_listed_and_not_read_is_down(host: RdmaHost) -> None:
    host.rails(8)
    host.remove("sys/class/infiniband/mlx5_6/ports")
    assert host.once() == [("NicDown", "nic/mlx5_6")]
    for number in range(5):
        host.remove(f"sys/class/infiniband/mlx5_{number}/ports")
    assert host.once() == []  # Nothing tells what they should be.


def test_an_adapter_that_left_the_bus_is_told_whatever_its_port_says(host: RdmaHost) -> None:
    host.rails(2)
    config = host.root / "sys/devices/pci0000:00/0000:11:00.0/config"
    config.write_bytes(bytes.fromhex("b3152110"))
    assert host.once() == []
    config.write_bytes(b"\xff\xff\xff\xff\xff\xff")
    assert host.once() == [("NicPcieFatal", "nic/mlx5_1")]


def test_ports_beyond_a_whole_set_for_the_gpus_may_have_no_cable(host: RdmaHost) -> None:
    host.rails(10)
    for number in (8, 9):
        cut(host, f"mlx5_{number}")
    host.told = {"expected": 8}
    host.faults()
    assert host.faults(300) == []
    cut(host, "mlx5_0")
    host.faults()
    assert ("NicDown", "nic/mlx5_0") in host.faults(300)
