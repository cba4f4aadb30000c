"""What shows only between two looks: error counters by rate, and how long a fabric takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetwell.health.vocabulary import Verdict
from fleetwell.probes.nvml_limits import limits
from probes.nvml_gpus import Machine, bind
from probes.verdicts import faults, worst

REPLAYS, CRC, RECEIVE_ERRORS = 161, 163, 208


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    bind(monkeypatch)
    return Machine(tmp_path, 8)


def counting(machine: Machine, field: int, by: int, times: int, later: float = 20.0) -> list[set[tuple[str, str]]]:
    """Have one link of one GPU count so many errors before each look."""
    seen = []
    for _ in range(times):
        counters = machine.gpus[2].link_fields
        counters[field, 7] = counters.get((field, 7), 0) + by
        seen.append(faults(machine.look(later)))
    return seen


RATE = {("NvlinkErrorRate", "nvlink/GPU-2/7")}


def test_a_count_of_a_lifetime_says_nothing_however_high(machine: Machine) -> None:
    assert counting(machine, CRC, 10_000_000, 1) == [set()]
    assert faults(machine.look()) == set()


def test_one_burst_of_errors_may_pass_and_one_that_goes_on_is_a_fault(machine: Machine) -> None:
    machine.look()
    assert counting(machine, CRC, 3000, 1) == [set()]
    assert faults(machine.look()) == set()
    assert counting(machine, CRC, 3000, 3) == [set(), RATE, RATE]
    assert faults(machine.look()) == set()


def test_errors_within_the_limit_are_no_fault(machine: Machine) -> None:
    machine.look()
    assert counting(machine, CRC, 1999, 3) == [set()] * 3
    assert counting(machine, REPLAYS, 19, 3) == [set()] * 3


def test_what_a_comparison_said_holds_in_a_look_that_follows_at_once(machine: Machine) -> None:
    machine.look()
    counting(machine, CRC, 3000, 2)
    assert faults(machine.look(later=1.0)) == RATE
    assert counting(machine, CRC, 10, 1) == [set()]


def test_a_counter_that_begins_anew_with_a_reset_is_no_rate(machine: Machine) -> None:
    counting(machine, CRC, 50_000, 1)
    machine.gpus[2].link_fields[CRC, 7] = 0
    assert faults(machine.look()) == set()
    assert counting(machine, CRC, 10, 2) == [set()] * 2


def test_links_of_the_fifth_generation_are_judged_by_their_own_counters(machine: Machine) -> None:
    for gpu in machine.gpus:
        gpu.link_fields = {(RECEIVE_ERRORS, link): 0 for link in range(18)}
    machine.look()
    assert counting(machine, RECEIVE_ERRORS, 3000, 2) == [set(), RATE]


def test_nothing_of_another_boot_or_another_machine_is_compared(machine: Machine) -> None:
    machine.look()
    counting(machine, CRC, 3000, 1)
    machine.boot = "boot-2"
    assert counting(machine, CRC, 3000, 1) == [set()]
    machine.now -= 5000.0  # A clock that counts from the boot goes back only with a file of another time.
    assert counting(machine, CRC, 3000, 1) == [set()]


@pytest.mark.parametrize("written", ["", "[]", '{"serial": "serial"}', '{"serial":"serial","boot":"boot-1","at":"x"}'])
def test_a_file_that_makes_no_sense_is_as_good_as_none(machine: Machine, tmp_path: Path, written: str) -> None:
    (tmp_path / "nvml.json").write_text(written)
    assert faults(machine.look()) == set()
    assert json.loads((tmp_path / "nvml.json").read_text())["at"] == machine.now


def test_a_folder_that_cannot_be_written_costs_the_rates_and_it_is_said(machine: Machine, tmp_path: Path) -> None:
    machine._path = tmp_path / "gone" / "nvml.json"
    seen = machine.look()
    assert faults(seen) == set()
    assert any("no rates" in text for text in json.loads(seen.encode())["blind"])


@pytest.mark.parametrize(("generation", "lanes"), [(1, 16), (3, 8), (4, 16), (5, 16), (6, 16)])
def test_pcie_replays_are_judged_by_generation_and_lanes(machine: Machine, generation: int, lanes: int) -> None:
    for gpu in machine.gpus:
        gpu.said |= {
            "nvmlDeviceGetCurrPcieLinkGeneration": generation,
            "nvmlDeviceGetMaxPcieLinkGeneration": generation,
        }
        gpu.said |= {"nvmlDeviceGetCurrPcieLinkWidth": lanes, "nvmlDeviceGetMaxPcieLinkWidth": lanes}
    a_minute = limits().replays[generation] * lanes

    def look(replays: float) -> set[tuple[str, str]]:
        machine.gpus[4].said["nvmlDeviceGetPcieReplayCounter"] += int(replays)
        return faults(machine.look(60.0))

    machine.look()
    assert [look(a_minute), look(a_minute)] == [set(), set()]
    assert [look(a_minute + 2), look(a_minute + 2)] == [set(), {("PcieReplays", "gpu/GPU-4")}]


def test_a_gpu_that_joins_its_fabric_is_not_known_yet_and_bad_when_it_takes_too_long(machine: Machine) -> None:
    machine.gpus[1].fabric["state"] = 2

    def seen(later: float) -> tuple[set[tuple[str, str]], Verdict]:
        look = machine.look(later)
        return faults(look), worst(look)

    found = {("FabricIncomplete", "gpu/GPU-1")}
    assert seen(20.0) == (found, Verdict.UNKNOWN)
    assert seen(280.0) == (found, Verdict.UNKNOWN)
    assert seen(20.0) == (found, Verdict.BAD)
    machine.gpus[1].fabric["state"] = 3
    assert seen(20.0) == (set(), Verdict.OK)
    machine.gpus[1].fabric["state"] = 1
    assert seen(20.0) == (found, Verdict.UNKNOWN)


def test_every_limit_stands_with_its_source() -> None:
    path = Path(__file__).parents[2] / "src/fleetwell/probes/data/nvml_limits.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    rows = [*told["memory"].values(), *told["nvlink_errors"].values(), told["nvlinks"], told["pcie_replays"]]
    assert all(len(row["source"]) > 20 for row in [*rows, told["fabric"]])
