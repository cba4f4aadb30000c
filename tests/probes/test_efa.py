"""How many EFA interfaces there are, and which of them have a driver."""

from __future__ import annotations

import json

from fleetwell.probes.inventory import Expected, MachineMemory, expected, requested
from probes.rdma_host import EFA, RdmaHost, adapters


def interfaces(host: RdmaHost, count: int) -> None:
    for number in range(count):
        host.adapter(
            f"rdmap{number + 79}s0",
            f"0000:{number + 79:02x}:00.0",
            ids=EFA,
            driver="efa",
            rate="100 Gb/sec (4X EDR)",
            layer="Unspecified",
        )


def unbound(host: RdmaHost, pci: str) -> None:
    host.put(f"sys/bus/pci/devices/{pci}/vendor", EFA[0])
    host.put(f"sys/bus/pci/devices/{pci}/device", EFA[1])


def must(node: dict[str, str], memory: int = 0) -> int | None:
    seen = MachineMemory(serial="s", most_nics=memory)
    return expected(Expected(), "p5.48xlarge", seen, requested(node, {})).nics


def test_adapters_of_others_are_not_counted_as_efa(host: RdmaHost) -> None:
    interfaces(host, 8)
    host.adapter("ibp203s0", "0000:cb:00.0")
    host.adapter("ibp204s0", "0000:cc:00.0")
    assert sum(adapter.is_efa for adapter in adapters(host)) == 8
    efa, infiniband = (json.loads(report.encode())["inventory"]["nics"] for report in host.look())
    assert (len(efa), len(infiniband)) == (8, 2)


def test_as_many_as_were_requested_are_no_fault_and_one_fewer_is(host: RdmaHost) -> None:
    interfaces(host, 4)
    assert must({}) is None
    host.told = {"expected_nics": must({})}
    assert host.faults() == []
    host.told = {"expected_nics": must({"fleetwell.io/requested-efa": "4"})}
    assert host.faults() == []
    host.told = {"expected_nics": must({"fleetwell.io/requested-efa": "5"})}
    assert host.faults() == [("EfaMissing", "host")]
    host.told = {"expected_nics": must({"fleetwell.io/requested-efa": "0"}, memory=32)}
    assert host.faults() == []  # Fewer were asked for than this machine had in another life.


def test_a_machine_without_any_that_asked_for_none_is_blind(host: RdmaHost) -> None:
    efa, infiniband = (json.loads(report.encode()) for report in host.look())
    assert efa["absent"]
    assert infiniband["absent"]
    host.told = {"expected_nics": 2}
    assert host.faults() == [("EfaMissing", "host")]


def test_one_that_is_gone_is_named(host: RdmaHost) -> None:
    interfaces(host, 3)
    known = {"rdmap79s0": "", "rdmap80s0": "", "rdmap81s0": "", "rdmap90s0": ""}
    host.told = {"expected_nics": 4, "known_nics": known}
    assert host.faults() == [("EfaMissing", "nic/rdmap90s0")]


def test_a_driver_that_is_not_loaded_is_the_images_fault_and_nothing_is_missing(host: RdmaHost) -> None:
    unbound(host, "0000:4f:00.0")
    host.put("sys/module/ib_core/initstate", "live")
    host.put("sys/module/ib_uverbs/initstate", "live")
    host.told = {"expected_nics": 1}
    assert host.faults() == [("NicDriverMissing", "host")]


def test_another_vendors_stack_beside_efa_without_a_driver_is_a_conflict(host: RdmaHost) -> None:
    unbound(host, "0000:4f:00.0")
    host.put("sys/module/efa/initstate", "live")
    host.put("sys/module/mlx_compat/initstate", "live")
    host.told = {"expected_nics": 1}
    assert host.faults() == [("NicDriverConflict", "host")]


def test_a_device_that_its_loaded_driver_has_not_taken_could_not_be_brought_up(host: RdmaHost) -> None:
    interfaces(host, 1)
    unbound(host, "0000:60:00.0")
    host.told = {"expected_nics": 3}
    assert host.faults() == [("EfaInitFailed", "nic/pci-0000:60:00.0"), ("EfaMissing", "host")]


def test_a_tree_without_modules_cannot_tell_why_a_device_has_no_driver(host: RdmaHost) -> None:
    unbound(host, "0000:60:00.0")
    host.told = {"expected_nics": 1}
    assert host.faults() == [("EfaMissing", "host")]


def test_programs_need_the_verbs_module(host: RdmaHost) -> None:
    interfaces(host, 1)
    host.put("sys/module/ib_core/initstate", "live")
    assert host.faults() == [("NicDriverMissing", "host")]
    host.put("sys/module/ib_uverbs/initstate", "live")
    assert host.faults() == []


def test_an_interface_that_no_program_can_open_is_told_beside_those_that_one_can(host: RdmaHost) -> None:
    interfaces(host, 3)
    for number in range(3):
        host.put(f"sys/class/infiniband_verbs/uverbs{number}/ibdev", f"rdmap{number + 79}s0")
    assert host.faults() == []
    host.remove("sys/class/infiniband_verbs/uverbs1/ibdev")
    assert host.faults() == [("NicInitFailed", "nic/rdmap80s0")]
