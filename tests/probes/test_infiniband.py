"""How many InfiniBand and RoCE adapters there are."""

from __future__ import annotations

import pytest

from probes.rdma_host import RdmaHost, adapters

KNOWN = {f"mlx5_{number}": f"0000:{number + 16:02x}:00.0" for number in range(8)}
AS_SEEN = {"expected_infiniband": 8, "known_infiniband": KNOWN}
"""What an agent is told that has seen eight rails here, and to whom nobody said how many there must be."""
AS_SAID = {"expected_infiniband": 8, "infiniband_up": 8}


def take_device(host: RdmaHost, name: str) -> None:
    """Take an adapter's RDMA device away; the function stays on the bus."""
    host.remove(f"sys/class/infiniband/{name}")


def test_an_adapter_that_is_gone_is_missing_by_name(host: RdmaHost) -> None:
    host.rails(7)
    known = {f"mlx5_{number}": f"0000:{number + 16:02x}:00.0" for number in range(8)}
    host.told = {"expected_infiniband": 8, "known_infiniband": known}
    assert host.faults() == [("NicMissing", "nic/mlx5_7")]


def test_names_that_moved_up_by_one_blame_no_adapter_that_is_there(host: RdmaHost) -> None:
    for number in range(7):
        host.adapter(f"mlx5_{number}", f"0000:{number + 17:02x}:00.0")  # The first one is gone.
    known = {f"mlx5_{number}": f"0000:{number + 16:02x}:00.0" for number in range(8)}
    host.told = {"expected_infiniband": 8, "known_infiniband": known}
    assert host.faults() == [("NicMissing", "host")]


def test_more_than_must_be_there_is_no_fault(host: RdmaHost) -> None:
    host.rails(10)
    host.told = {"expected_infiniband": 8}
    assert host.faults() == []


def test_virtual_functions_come_and_go(host: RdmaHost) -> None:
    host.rails(8)
    host.adapter("mlx5_8", "0000:50:00.1", rate="10 Gb/sec (4X SDR)")
    host.port("mlx5_8", state="1: DOWN")
    (host.root / "sys/devices/pci0000:00/0000:50:00.1/physfn").mkdir()
    assert host.faults(300) == []
    assert host.faults(300) == []


@pytest.mark.parametrize("told", [AS_SEEN, AS_SAID])
def test_an_adapter_of_another_kind_does_not_stand_for_a_missing_one(host: RdmaHost, told: dict[str, object]) -> None:
    host.rails(7)
    host.adapter("mlx5_an0", "0000:40:00.0", ids=("0x15b3", "0x101a"), layer="Ethernet", rate="100 Gb/sec (4X EDR)")
    host.told = {**AS_SEEN, "expected_infiniband": 9} if told is AS_SEEN else told
    assert [fault for fault, _ in host.faults()] == ["NicMissing"]


@pytest.mark.parametrize(("name", "pci"), [("rxe0", ""), ("siw0", "0000:12:00.0"), ("smi1", "0000:12:00.0")])
def test_a_device_without_hardware_of_its_own_is_neither_counted_nor_compared(
    host: RdmaHost, name: str, pci: str
) -> None:
    host.rails(7)
    host.second_device(name, pci, rate="2.5 Gb/sec (1X SDR)")
    host.port(name, state="1: DOWN")
    host.told = dict(AS_SAID)
    assert host.faults(300) == [("NicMissing", "host")]
    host.told = {}
    assert host.faults(300) == []
    assert host.once() == []


def test_a_sub_function_is_no_adapter(host: RdmaHost) -> None:
    host.rails(7)
    host.put("sys/devices/pci0000:00/0000:12:00.0/mlx5_core.sf.2/sfnum", 88)
    host.put("sys/class/infiniband/mlx5_9/ports/1/state", "4: ACTIVE")
    where = host.root / "sys/devices/pci0000:00/0000:12:00.0/mlx5_core.sf.2"
    (host.root / "sys/class/infiniband/mlx5_9/device").symlink_to(where)
    assert [adapter.name for adapter in adapters(host) if not adapter.is_physical] == ["mlx5_9"]
    host.told = dict(AS_SAID)
    assert host.faults() == [("NicMissing", "host")]


def test_virtual_functions_that_are_taken_away_again_are_not_missed(host: RdmaHost) -> None:
    host.rails(8)
    host.adapter("mlx5_8", "0000:50:00.1")
    (host.root / "sys/devices/pci0000:00/0000:50:00.1/physfn").mkdir()
    _, report = host.look()
    assert '"mlx5_8"' not in report.encode()  # Else the agent would remember nine.


def test_a_card_whose_driver_could_not_start_it_is_told_although_nobody_counted(host: RdmaHost) -> None:
    host.rails(8)
    take_device(host, "mlx5_3")
    host.remove("sys/devices/pci0000:00/0000:13:00.0/driver")
    host.put("sys/devices/pci0000:00/0000:13:00.0/class", "0x020700")
    assert host.faults() == [("NicInitFailed", "nic/pci-0000:13:00.0")]
    host.told = dict(AS_SEEN)
    assert host.faults() == [("NicInitFailed", "nic/pci-0000:13:00.0")]  # And it is not missing beside that.


def test_a_card_that_was_torn_down_is_told_and_one_that_lives_in_another_way_is_not(host: RdmaHost) -> None:
    host.rails(8)
    take_device(host, "mlx5_3")
    device = "sys/devices/pci0000:00/0000:13:00.0"
    host.put(f"{device}/class", "0x020700")
    host.put("sys/module/mlx5_ib/initstate", "live")
    assert host.faults() == [("NicInitFailed", "nic/pci-0000:13:00.0")]
    host.put(f"{device}/mlx5_core.eth.0/uevent", "")
    assert host.faults() == []
    host.remove(f"{device}/mlx5_core.eth.0")
    host.put(f"{device}/net/eth3/operstate", "up")  # The second function of a bond, or RDMA is switched off.
    assert host.faults() == []
    host.told = dict(AS_SEEN)
    assert host.faults() == []


def test_a_card_that_left_for_a_pods_network_namespace_or_a_virtual_machine_is_not_missed(host: RdmaHost) -> None:
    host.rails(8)
    take_device(host, "mlx5_3")
    device = "sys/devices/pci0000:00/0000:13:00.0"
    host.put(f"{device}/class", "0x020700")
    host.told = dict(AS_SEEN)
    assert host.faults() == [("NicMissing", "nic/mlx5_3")]
    host.put("sys/module/ib_core/parameters/netns_mode", "N")
    host.put("sys/module/ib_uverbs/initstate", "live")
    assert host.faults() == []
    host.put("sys/module/ib_core/parameters/netns_mode", "Y")
    assert host.faults() == [("NicMissing", "nic/mlx5_3")]
    host.remove(f"{device}/driver")
    (host.root / device / "driver").symlink_to(host.root / "sys/bus/pci/drivers/vfio-pci")
    assert host.faults() == []


def test_a_module_that_is_not_loaded_is_the_images_fault(host: RdmaHost) -> None:
    host.rails(8)
    for number in range(8):
        take_device(host, f"mlx5_{number}")
        host.put(f"sys/devices/pci0000:00/0000:{number + 16:02x}:00.0/class", "0x020700")
    host.put("sys/module/mlx5_core/initstate", "live")
    assert host.faults() == []
    host.told = dict(AS_SAID)
    assert host.faults() == [("NicDriverMissing", "host")]
