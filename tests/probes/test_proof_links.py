"""The proof's links: host to device, device to device, and all together."""

from __future__ import annotations

import pytest

from fleetwell.probes.proof_cpu import CpuLinks
from fleetwell.probes.proof_device import CannotTellError
from fleetwell.probes.proof_links import collective, host_link, peer_links
from fleetwell.probes.proof_rows import Row
from fleetwell.probes.proof_thresholds import thresholds
from probes.proof_devices import H100, Clock, FaultyDevice, FaultyLinks, small

MODEL = thresholds().model(H100)
LEVEL = small("medium", copy_mib=64)


def pairs(links: CpuLinks) -> list[Row]:
    return list(peer_links(links, LEVEL, MODEL, Clock().time()))


def test_a_host_link_at_its_rate_passes() -> None:
    row = host_link(FaultyDevice(copy_seconds=64 / 1024 / 55), LEVEL, MODEL)
    assert (row.verdict, row.component) == ("OK", "gpu/GPU-1")


def test_a_host_link_at_half_its_width_fails() -> None:
    row = host_link(FaultyDevice(copy_seconds=64 / 1024 / 25), LEVEL, MODEL)
    assert row.verdict == "BAD"
    assert "the floor is 31.5" in row.said


def test_data_that_comes_back_changed_from_a_device_fails() -> None:
    assert host_link(FaultyDevice(copies_change=True), LEVEL, MODEL).verdict == "BAD"


def test_pairs_at_their_rate_pass() -> None:
    (row,) = pairs(FaultyLinks(8))
    assert row.verdict == "OK"
    assert row.said.startswith("56 pairs, 390 to 390 GB/s")


def test_a_device_that_is_slow_with_all_others_is_named_alone() -> None:
    slow = {(3, other) for other in range(8) if other != 3} | {(other, 3) for other in range(8) if other != 3}
    (row,) = pairs(FaultyLinks(8, slow=slow))
    assert (row.verdict, row.component) == ("BAD", "gpu/GPU-3")
    assert "cannot be told" not in row.said


def test_of_one_slow_pair_both_are_named_and_which_it_is_is_left_open() -> None:
    (row,) = pairs(FaultyLinks(4, slow={(1, 2)}))
    assert row.verdict == "BAD"
    assert {row.component, *row.said.split()} >= {"gpu/GPU-1", "gpu/GPU-2,"}
    assert "cannot be told by one pair" in row.said


def test_when_every_pair_is_slow_no_device_is_blamed() -> None:
    every = {(one, other) for one in range(4) for other in range(4)}
    (row,) = pairs(FaultyLinks(4, slow=every))
    assert (row.verdict, row.component) == ("BAD", "host")


def test_data_that_arrives_changed_on_another_device_fails() -> None:
    rows = pairs(FaultyLinks(4, changes=(2, 1)))
    assert [row.component for row in rows if row.verdict == "BAD"] == ["gpu/GPU-2"]
    assert "gpu/GPU-1" in rows[0].said


def test_pairs_that_were_not_reached_in_time_are_no_pass() -> None:
    with pytest.raises(CannotTellError, match="out of time"):
        list(peer_links(FaultyLinks(2), LEVEL, MODEL, Clock().time(0)))


def rates(gbps: float, count: int = 8) -> dict[str, float]:
    return {f"gpu/GPU-{number}": gbps for number in range(count)}


def test_a_collective_at_its_bandwidth_passes() -> None:
    (row,) = collective(rates(470), {}, MODEL, H100)
    assert row.verdict == "OK"


def test_a_collective_below_its_floor_fails_the_node() -> None:
    (row,) = collective(rates(300), {}, MODEL, H100)
    assert (row.verdict, row.component) == ("BAD", "host")
    assert "the floor is 414" in row.said


def test_a_collective_over_another_number_of_devices_has_no_floor_and_says_so() -> None:
    (row,) = collective(rates(120, 4), {}, MODEL, H100)
    assert row.verdict == "OK"
    assert "no floor for 4" in row.said


def test_a_wrong_sum_on_one_device_names_it() -> None:
    (row,) = collective(rates(470), {"gpu/GPU-5": 3}, MODEL, H100)
    assert (row.verdict, row.component) == ("BAD", "gpu/GPU-5")


def test_a_sum_that_is_wrong_everywhere_blames_none_alone() -> None:
    rows = list(collective(rates(470), dict.fromkeys(rates(0), 3), MODEL, H100))
    assert {row.verdict for row in rows} == {"BAD"}
    assert all("cannot be told" in row.said for row in rows)
