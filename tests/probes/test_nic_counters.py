"""What adapters count, by rate."""

from __future__ import annotations

import json

import pytest

from fleetwell.health.catalogue import fault
from fleetwell.probes import nic_counters
from probes.rdma_host import EFA, RdmaHost

DEVICE, PORT = "hw_counters", "ports/1/hw_counters"


@pytest.fixture
def efa(host: RdmaHost) -> RdmaHost:
    host.adapter("rdmap0s0", "0000:20:00.0", ids=EFA, driver="efa", rate="100 Gb/sec (4X EDR)", layer="Unspecified")
    beat(host, 10)
    host.count("rdmap0s0", PORT, rx_drops=0)
    return host


def beat(host: RdmaHost, keep_alive: int, *, submitted: int = 96, completed: int = 96, given_up: int = 0) -> None:
    host.count(
        "rdmap0s0",
        DEVICE,
        keep_alive_rcvd=keep_alive,
        submitted_cmds=submitted,
        completed_cmds=completed,
        no_completion_cmds=given_up,
    )


def test_every_limit_names_a_fault_of_the_catalogue_and_its_source() -> None:
    for limit in nic_counters.limits():
        assert fault(limit.fault).name == limit.fault
        assert limit.driver in {"efa", "other"}
        assert limit.source
        assert limit.says
        assert limit.per_second > 0


def test_a_counter_that_stands_at_any_height_is_no_fault(host: RdmaHost) -> None:
    host.rails(1)
    host.count("mlx5_0", symbol_error=65_535, local_link_integrity_errors=15)
    assert [host.faults() for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize(
    ("counter", "within", "beyond"),
    [
        ("symbol_error", 100, 200),
        ("link_error_recovery", 8, 12),
        ("local_link_integrity_errors", 0, 1),
        ("excessive_buffer_overrun_errors", 0, 1),
    ],
)
def test_errors_of_the_link_are_a_fault_beyond_their_limit(
    host: RdmaHost, counter: str, within: int, beyond: int
) -> None:
    host.rails(1)
    host.count("mlx5_0", **{counter: 3})
    host.faults()
    host.count("mlx5_0", **{counter: 3 + within})
    assert host.faults() == []
    host.count("mlx5_0", **{counter: 3 + within + beyond})
    assert host.faults() == [("NicErrorRate", "nic/mlx5_0")]


def test_a_slow_drip_adds_up_to_its_limit_by_the_hour(host: RdmaHost) -> None:
    host.rails(1)
    host.count("mlx5_0", symbol_error=0)
    host.faults()
    told = []
    for minute in range(1, 60):
        host.count("mlx5_0", symbol_error=10 * minute)  # 600 an hour, where 120 are allowed
        told.append(bool(host.faults()))
    assert not told[0]
    assert told[-1]


def test_a_rate_within_the_limit_never_adds_up(host: RdmaHost) -> None:
    host.rails(1)
    host.count("mlx5_0", symbol_error=0)
    host.faults()
    for minute in range(1, 200):
        host.count("mlx5_0", symbol_error=minute)
        assert host.faults() == []


def test_a_counter_that_falls_was_begun_anew(host: RdmaHost) -> None:
    host.rails(1)
    host.count("mlx5_0", symbol_error=5000)
    host.faults()
    host.count("mlx5_0", symbol_error=300)
    assert host.faults() == []


def test_a_counter_that_appears_later_is_not_compared_with_zero(host: RdmaHost) -> None:
    host.rails(1)
    host.faults()
    host.count("mlx5_0", symbol_error=5000)
    assert host.faults() == []


def test_what_was_found_holds_in_a_look_that_follows_at_once(host: RdmaHost) -> None:
    host.rails(1)
    host.count("mlx5_0", symbol_error=0)
    host.faults()
    host.count("mlx5_0", symbol_error=5000)
    assert host.faults() == [("NicErrorRate", "nic/mlx5_0")]
    assert host.faults(1.0) == [("NicErrorRate", "nic/mlx5_0")]


@pytest.mark.parametrize("counter", ["unresponsive_remote_events", "impaired_remote_conn_events"])
def test_what_blames_the_peer_asks_for_nothing_here(efa: RdmaHost, counter: str) -> None:
    efa.count("rdmap0s0", PORT, **{counter: 0})
    efa.faults()
    efa.count("rdmap0s0", PORT, **{counter: 100_000})
    (seen,) = efa.observations()
    assert seen["fault"] == "EfaPeerUnresponsive"
    assert "verdict" not in seen
    assert (fault("EfaPeerUnresponsive").verdict, fault("EfaPeerUnresponsive").recovery) == ("CONFIG", "none")


@pytest.mark.parametrize("counter", ["rnr_nak_retry_err", "req_rnr_retries_exceeded", "req_transport_retries_exceeded"])
def test_receivers_that_are_not_ready_or_do_not_answer_are_the_peer(host: RdmaHost, counter: str) -> None:
    host.rails(1)
    host.count("mlx5_0", PORT, **{counter: 0})
    host.faults()
    host.count("mlx5_0", PORT, **{counter: 50})
    assert host.faults() == [("NicPeerUnresponsive", "nic/mlx5_0")]
    assert fault("NicPeerUnresponsive").recovery == "none"


def test_efa_drops_are_noted_and_condemn_nobody(efa: RdmaHost) -> None:
    efa.faults()
    efa.count("rdmap0s0", PORT, rx_drops=10_000)
    (seen,) = efa.observations()
    assert (seen["fault"], seen["verdict"], seen["recovery"]) == ("NicErrorRate", "CONFIG", "none")


def test_an_admin_queue_without_keep_alives_that_gives_commands_up_is_dead_and_stays_so(efa: RdmaHost) -> None:
    beat(efa, 10)
    efa.faults()
    beat(efa, 70)
    assert efa.faults() == []
    beat(efa, 70, submitted=104, given_up=8)
    assert efa.faults() == [("EfaAdminQueueDead", "nic/rdmap0s0")]
    assert efa.faults() == [("EfaAdminQueueDead", "nic/rdmap0s0")]  # Nothing rises any more.
    beat(efa, 71, submitted=104, given_up=8)
    assert efa.faults() == []


def test_commands_that_wait_without_a_keep_alive_show_it_too(efa: RdmaHost) -> None:
    efa.faults()
    beat(efa, 10, submitted=100)
    assert efa.faults() == [("EfaAdminQueueDead", "nic/rdmap0s0")]


def test_still_keep_alives_alone_are_no_fault(efa: RdmaHost) -> None:
    efa.faults()
    assert efa.faults() == []
    beat(efa, 60)
    efa.faults()
    report, _ = efa.look()
    assert "no keep-alive" in json.loads(report.encode())["blind"][0]
    assert json.loads(report.encode())["observations"] == []


def test_a_busy_queue_with_keep_alives_is_alive(efa: RdmaHost) -> None:
    efa.faults()
    beat(efa, 60, submitted=500, completed=450, given_up=1)
    assert efa.faults() == []


def test_a_driver_that_was_loaded_anew_is_not_dead(efa: RdmaHost) -> None:
    beat(efa, 500, submitted=900, completed=900)
    efa.faults()
    beat(efa, 2, submitted=20, completed=19)
    assert efa.faults() == []


def test_a_memory_of_another_machine_or_of_nonsense_is_worth_nothing(host: RdmaHost) -> None:
    host.rails(1)
    host.count("mlx5_0", symbol_error=0)
    host.faults()
    host.count("mlx5_0", symbol_error=5000)
    host.memory_file.write_text(host.memory_file.read_text().replace('"serial": "serial"', '"serial": "other"'))
    assert host.faults() == []
    for damage in ("{", "[]", '{"serial": "serial"}', '{"serial": "serial", "lasting": [], "ports": 3}'):
        host.memory_file.write_text(damage)
        assert host.faults() == []
