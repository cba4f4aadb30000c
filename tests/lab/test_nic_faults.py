"""Faults of network adapters show where the real machine would show them."""

from pathlib import Path

import pytest

from fleetwell.lab import machine
from fleetwell.lab.faults import FaultError, inject
from fleetwell.lab.hardware import Hardware

PORT = "sys/class/infiniband/{}/ports/1"


@pytest.fixture
def b200(tmp_path: Path, mock_nvml: Path) -> Hardware:
    return Hardware.create(machine.load("p6-b200.48xlarge"), tmp_path / "b200", "seed", library=mock_nvml)


def read(hardware: Hardware, name: str, attribute: str) -> str:
    return (hardware.root / PORT.format(name) / attribute).read_text(encoding="ascii").strip()


def test_a_degraded_adapter_says_so_only_in_its_rate_or_its_bus(b200: Hardware) -> None:
    assert inject(b200, "nic-degraded", nic="rdmap79s0") == ()
    assert read(b200, "rdmap79s0", "rate") == "200 Gb/sec (4X HDR)"
    assert inject(b200, "nic-degraded", nic="rdmap79s0", what="pcie") == ()
    bus = b200.root / "sys/bus/pci/devices/0000:4f:00.0"
    assert (bus / "current_link_width").read_text(encoding="ascii") == "4\n"
    assert (bus / "max_link_width").read_text(encoding="ascii") == "8\n"


def test_a_port_that_is_down_stays_down_after_a_reboot_and_its_counters_begin_anew(b200: Hardware) -> None:
    assert inject(b200, "nic-down") == ()
    assert read(b200, "ibp204s0", "state") == "1: DOWN"
    assert read(b200, "ibp204s0", "counters/link_downed") == "1"
    b200.reboot()
    assert read(b200, "ibp204s0", "phys_state") == "2: Polling"
    assert read(b200, "ibp204s0", "counters/link_downed") == "0"


def test_flaps_show_in_the_counters_alone(b200: Hardware) -> None:
    inject(b200, "nic-flap", times="5")
    assert read(b200, "ibp204s0", "state") == "4: ACTIVE"
    assert read(b200, "ibp204s0", "counters/link_downed") == "5"


def test_a_dead_admin_queue_shows_in_counters_and_log_and_never_in_the_port(b200: Hardware) -> None:
    first, last = inject(b200, "efa-dead", nic="rdmap79s0")
    assert first.startswith("infiniband rdmap79s0: The device didn't send any completion for admin cmd")
    assert last == "infiniband rdmap79s0: Admin queue is closed"
    device = b200.root / "sys/class/infiniband/rdmap79s0/hw_counters"
    assert (device / "no_completion_cmds").read_text(encoding="ascii") == "8\n"
    assert read(b200, "rdmap79s0", "state") == "4: ACTIVE"


def test_errors_rise_in_a_counter_that_the_adapter_has(node: Hardware) -> None:
    inject(node, "nic-errors", by="7")
    hardware = node.root / "sys/class/infiniband/rdmap201s0/ports/1/hw_counters"
    assert (hardware / "rdma_read_wr_err").read_text(encoding="ascii") == "7\n"
    with pytest.raises(FaultError, match="rdmap201s0 has no counter 'unresponsive_remote_events'; nothing was changed"):
        inject(node, "nic-errors", counter="unresponsive_remote_events")


def test_clear_mends_adapters(b200: Hardware) -> None:
    for fault in ("nic-degraded", "nic-down", "nic-errors", "efa-dead"):
        inject(b200, fault)
    inject(b200, "clear")
    assert read(b200, "ibp204s0", "state") == "4: ACTIVE"
    assert read(b200, "ibp204s0", "rate") == "400 Gb/sec (4X NDR)"
    assert read(b200, "ibp204s0", "counters/symbol_error") == "0"


@pytest.mark.parametrize(
    ("fault", "parameters", "complaint"),
    [
        ("nic-down", {"nic": "rdmap79s0"}, "no InfiniBand adapter"),
        ("efa-dead", {"nic": "ibp204s0"}, "no EFA interface"),
        ("nic-degraded", {"what": "colour"}, "rate or pcie"),
    ],
)
def test_what_an_adapter_cannot_have_is_refused(
    b200: Hardware, fault: str, parameters: dict[str, str], complaint: str
) -> None:
    with pytest.raises(FaultError, match=complaint):
        inject(b200, fault, None, **parameters)


def test_a_machine_without_infiniband_cannot_lose_a_port_of_it(node: Hardware) -> None:
    with pytest.raises(FaultError, match="no InfiniBand adapter"):
        inject(node, "nic-down")
