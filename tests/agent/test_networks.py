"""Faults of the network, from the virtual hardware through the real child to the condition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import read_boot
from fleetwell.agent.maintenance import maintenance_source, provider_of
from fleetwell.agent.settings import Settings, Timing
from fleetwell.agent.sources import ChildSource
from fleetwell.health.vocabulary import ConditionStatus, ConditionType
from fleetwell.lab import machine
from fleetwell.lab.faults import inject
from fleetwell.lab.hardware import Hardware
from fleetwell.probes import SYSFS_PROBES
from fleetwell.probes.inventory import Expected, MachineMemory, requested, told
from fleetwell.probes.maintenance_events import SCHEDULED
from probes.metadata_server import MetadataServer, metadata_server

NOTHING_SAID = Expected()


class Node:
    """One virtual machine with EFA and InfiniBand, and the agent's view of its network."""

    def __init__(self, tmp_path: Path, said: Expected = NOTHING_SAID) -> None:
        self.hardware = Hardware.create(machine.load("p6-b200.48xlarge"), tmp_path / "host", "seed")
        self.memory_file = tmp_path / "nics.json"
        boot = read_boot(self.hardware.root, "node-1")
        self.assessment = Assessment(boot, MachineMemory(serial=boot.serial), said)
        timing = Timing(interval=60, deadline=20)
        self.source = ChildSource("sysfs", SYSFS_PROBES, timing, self.asked, self.assessment)

    def asked(self) -> dict[str, object]:
        return {
            "host_root": str(self.hardware.root),
            "nic_memory": str(self.memory_file),
            **told(self.assessment.expected, self.assessment.memory),
        }

    async def look(self, times: int = 1, after: float = 60.0) -> set[tuple[str, str]]:
        """Look, so many seconds after the look before: what the child remembers is made so much older."""
        for _ in range(times):
            if self.memory_file.exists():
                kept = json.loads(self.memory_file.read_text())
                kept["sampled_at"] -= after
                for port in kept["ports"].values():
                    port["down_since"] = None if port["down_since"] is None else port["down_since"] - after
                self.memory_file.write_text(json.dumps(kept))
            await self.source.look()
        return {(one.fault, one.component) for one in self.assessment.findings}

    def network(self) -> ConditionStatus:
        return next(one.status for one in self.assessment.conditions() if one.type is ConditionType.NETWORK)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_eight_efa_interfaces_and_two_others_are_well(node: Node) -> None:
    assert await node.look(2) == set()
    assert node.network() is ConditionStatus.TRUE
    assert (node.assessment.efa_seen, node.assessment.infiniband_seen) == (8, 2)
    assert node.assessment.status().seen.nics == 10
    assert node.assessment.expected.nics == 8


async def test_a_degraded_adapter_turns_the_condition(node: Node) -> None:
    await node.look()
    inject(node.hardware, "nic-degraded", nic="rdmap79s0")
    inject(node.hardware, "nic-degraded", nic="ibp204s0", what="pcie")
    assert await node.look(2) == {("NicDegraded", "nic/rdmap79s0"), ("NicDegraded", "nic/ibp204s0")}
    assert node.network() is ConditionStatus.FALSE
    inject(node.hardware, "clear")
    assert await node.look(2) == set()
    assert node.network() is ConditionStatus.TRUE


async def test_a_port_that_fell_turns_it_after_four_minutes(node: Node) -> None:
    await node.look()
    inject(node.hardware, "nic-down")
    assert await node.look(4) == set()
    assert await node.look() == {("NicDown", "nic/ibp204s0")}
    assert node.network() is ConditionStatus.FALSE


async def test_flaps_and_errors_turn_it_at_once(node: Node) -> None:
    await node.look()
    inject(node.hardware, "nic-flap")
    inject(node.hardware, "nic-errors", nic="ibp203s0")
    assert await node.look() == {("NicFlapping", "nic/ibp204s0"), ("NicErrorRate", "nic/ibp203s0")}
    assert node.network() is ConditionStatus.FALSE


async def test_a_dead_admin_queue_turns_it_although_the_port_says_active(node: Node) -> None:
    await node.look()
    inject(node.hardware, "efa-dead", nic="rdmap79s0")
    assert await node.look(2) == {("EfaAdminQueueDead", "nic/rdmap79s0")}
    assert node.network() is ConditionStatus.FALSE


@pytest.mark.parametrize(
    ("nic", "counter", "fault"),
    [
        ("rdmap79s0", "unresponsive_remote_events", "EfaPeerUnresponsive"),
        ("rdmap79s0", "impaired_remote_conn_events", "EfaPeerUnresponsive"),
        ("ibp204s0", "local_ack_timeout_err", "NicPeerUnresponsive"),
        ("ibp204s0", "rnr_nak_retry_err", "NicPeerUnresponsive"),
    ],
)
async def test_a_peer_that_does_not_answer_turns_nothing(node: Node, nic: str, counter: str, fault: str) -> None:
    await node.look()
    inject(node.hardware, "nic-errors", nic=nic, counter=counter, by=90_000)
    assert await node.look() == {(fault, f"nic/{nic}")}
    (finding,) = node.assessment.findings
    assert (finding.verdict, finding.recovery) == ("CONFIG", "none")
    assert node.network() is ConditionStatus.TRUE


async def test_interfaces_that_come_late_after_a_boot_are_waited_for_and_then_missed(node: Node) -> None:
    node.source._timing = Timing(interval=60, deadline=20, boot_grace=3600)
    node.assessment.requested = requested({}, {"fleetwell.io/requested-efa": "8"})
    with node.hardware.update() as state:
        state.missing_nics |= {"rdmap79s0", "rdmap96s0"}
    assert await node.look(4) == set()
    assert node.network() is not ConditionStatus.FALSE
    with node.hardware.update() as state:
        state.missing_nics.clear()
    assert await node.look(2) == set()
    assert node.network() is ConditionStatus.TRUE
    with node.hardware.update() as state:  # Once they were all there, one that is gone did not come late.
        state.missing_nics.add("rdmap79s0")
    assert await node.look(3) == {("EfaMissing", "nic/rdmap79s0")}
    assert node.network() is ConditionStatus.FALSE


async def test_interfaces_that_are_still_not_there_after_the_grace_are_missing(node: Node) -> None:
    node.assessment.requested = requested({}, {"fleetwell.io/requested-efa": "8"})
    with node.hardware.update() as state:
        state.missing_nics.add("rdmap79s0")
    assert await node.look(2) == set()  # One look shows nothing, nor do two.
    assert await node.look() == {("EfaMissing", "host")}
    assert node.network() is ConditionStatus.FALSE


async def test_the_table_of_types_makes_no_interface_missing(node: Node) -> None:
    with node.hardware.update() as state:
        state.missing_nics |= {"rdmap79s0", "rdmap96s0"}
    assert node.assessment.instance_type == "p6-b200.48xlarge"  # It could have eight.
    assert await node.look(4) == set()
    assert node.network() is ConditionStatus.TRUE


async def test_a_rate_below_what_the_operator_says_of_the_model_turns_it_although_all_are_alike(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, Expected(efa_gbps=800))
    assert {fault for fault, _ in await node.look(2)} == {"NicDegraded"}
    assert len(node.assessment.findings) == 8
    assert node.network() is ConditionStatus.FALSE


async def test_a_card_that_its_driver_gave_up_turns_it_although_nobody_counted(node: Node) -> None:
    await node.look()
    with node.hardware.update() as state:
        state.missing_nics.add("ibp204s0")
    card = node.hardware.root / "sys/bus/pci/devices/0000:cc:00.0"
    for name, value in (("vendor", "0x15b3"), ("device", "0x1021"), ("class", "0x020700")):
        card.mkdir(parents=True, exist_ok=True)
        (card / name).write_text(f"{value}\n")
    assert await node.look(3) == {("NicInitFailed", "nic/pci-0000:cc:00.0")}
    assert node.network() is ConditionStatus.FALSE


async def test_a_missing_adapter_of_either_kind_is_named(node: Node) -> None:
    await node.look()
    with node.hardware.update() as state:
        state.missing_nics |= {"rdmap79s0", "ibp204s0"}
    assert await node.look(3) == {("EfaMissing", "nic/rdmap79s0"), ("NicMissing", "nic/ibp204s0")}


async def test_what_was_requested_comes_before_what_was_seen(node: Node) -> None:
    await node.look()
    node.assessment.requested = requested({}, {"fleetwell.io/requested-efa": "7"})
    with node.hardware.update() as state:
        state.missing_nics.add("rdmap79s0")
    assert await node.look(3) == set()
    with node.hardware.update() as state:
        state.missing_nics.add("rdmap96s0")
    assert await node.look(3) == {("EfaMissing", "host")}


async def test_a_machine_without_infiniband_is_not_looked_at_again_and_again_after_its_boot(tmp_path: Path) -> None:
    hardware = Hardware.create(machine.load("g6e.24xlarge"), tmp_path / "host", "seed")
    boot = read_boot(hardware.root, "node-1")
    assessment = Assessment(boot, MachineMemory(serial=boot.serial), NOTHING_SAID)
    timing = Timing(interval=60, deadline=20, boot_grace=3600)
    source = ChildSource("sysfs", SYSFS_PROBES, timing, lambda: {"host_root": str(hardware.root)}, assessment)
    assert await source.look() > 50
    states = {probe.name: probe.state for probe in assessment.status().probes}
    assert states["infiniband"] == "Blind"


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with metadata_server() as running:
        yield running


def asking(tmp_path: Path, node: Node, url: str) -> ChildSource:
    settings = Settings(node_name="n", host_root=node.hardware.root, state_dir=tmp_path, metadata_url=url)
    source = maintenance_source(settings, node.assessment)
    assert source is not None
    return source


async def test_announced_maintenance_is_a_finding_with_its_time_until_it_is_cancelled(
    tmp_path: Path, node: Node, server: MetadataServer
) -> None:
    event = {"Code": "instance-retirement", "NotBefore": "21 Jan 2027 09:00:43 GMT", "State": "active"}
    server.answers[SCHEDULED] = (200, json.dumps([event]))
    source = asking(tmp_path, node, server.url)
    await source.look()
    (finding,) = node.assessment.findings
    assert (finding.fault, finding.verdict, finding.recovery) == ("MaintenanceAnnounced", "CONFIG", "replace")
    assert finding.evidence[0].startswith("due=2027-01-21T09:00:43Z")
    server.answers[SCHEDULED] = (500, "")
    for _ in range(3):
        await source.look()
    assert len(node.assessment.findings) == 1  # What cannot be asked is not cancelled.
    server.answers[SCHEDULED] = (200, json.dumps([event | {"State": "canceled"}]))
    for _ in range(2):
        await source.look()
    assert len(node.assessment.findings) == 0


async def test_a_metadata_server_that_falls_silent_or_hangs_is_blind_and_no_fault(
    tmp_path: Path, node: Node, server: MetadataServer
) -> None:
    await node.look()
    source = asking(tmp_path, node, server.url)
    await source.look()
    gone = asking(tmp_path, node, "http://127.0.0.1:9")
    for _ in range(3):
        await gone.look()
    hung = asking(tmp_path, node, server.url)
    hung._timing = Timing(interval=60, deadline=0.001)
    for _ in range(3):
        await hung.look()
    assert node.assessment.findings == ()
    (state,) = (probe for probe in node.assessment.status().probes if probe.name == "maintenance")
    assert state.state == "Blind"
    assert {one.status for one in node.assessment.conditions() if one.type is ConditionType.NETWORK} == {
        ConditionStatus.TRUE
    }


def test_the_provider_is_told_by_the_firmware_and_can_be_set(tmp_path: Path, node: Node) -> None:
    assert provider_of(node.hardware.root) == "ec2"
    assert provider_of(tmp_path) == "off"
    settings = Settings(node_name="n", host_root=node.hardware.root, state_dir=tmp_path, maintenance="off")
    assert maintenance_source(settings, node.assessment) is None
