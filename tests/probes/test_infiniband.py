"""How many InfiniBand and RoCE adapters there are."""

from __future__ import annotations

from probes.rdma_host import RdmaHost


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
