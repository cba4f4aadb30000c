"""What a node must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetwell.probes.inventory import (
    Expected,
    MachineMemory,
    MemoryFile,
    expected,
    instance_types,
    parse_expect,
    remember,
)
from fleetwell.probes.protocol import GpuSeen, InventorySeen, NicSeen

NOTHING = MachineMemory(serial="s1")


def gpus(*uuids: str) -> InventorySeen:
    return InventorySeen(gpus=tuple(GpuSeen(uuid=uuid, pci=f"0000:{n:02x}:00.0") for n, uuid in enumerate(uuids)))


def nics(count: int) -> InventorySeen:
    return InventorySeen(nics=tuple(NicSeen(name=f"rdmap{n}s0") for n in range(count)))


def test_the_operators_word_comes_before_the_table_and_the_table_before_what_was_seen() -> None:
    memory = MachineMemory(serial="s1", most_gpus=7)
    assert expected(Expected(gpus=4), "p5.48xlarge", memory).gpus == 4
    assert expected(Expected(), "p5.48xlarge", memory).gpus == 8
    assert expected(Expected(), "unheard.of", memory).gpus == 7
    assert expected(Expected(), "unheard.of", NOTHING).gpus is None


def test_the_table_never_asks_for_interfaces_it_only_bounds_them() -> None:
    assert expected(Expected(), "p5.48xlarge", NOTHING).nics is None
    assert expected(Expected(), "p5.48xlarge", MachineMemory(serial="s1", most_nics=16)).nics == 16
    assert expected(Expected(), "p4d.24xlarge", MachineMemory(serial="s1", most_nics=6)).nics == 4
    assert expected(Expected(nics=32), "p5.48xlarge", MachineMemory(serial="s1", most_nics=16)).nics == 32


def test_every_row_of_the_table_tells_something() -> None:
    assert all(row.gpus > 0 or row.efa > 0 for row in instance_types().values())


def test_the_most_that_was_seen_stays_when_less_is_seen() -> None:
    memory = remember(NOTHING, gpus("a", "b"), "nvml", Expected())
    memory = remember(memory, nics(3), "efa", Expected())
    memory = remember(memory, gpus("a"), "nvml", Expected())
    memory = remember(memory, nics(2), "efa", Expected())
    assert (memory.most_gpus, memory.most_nics) == (2, 3)
    assert set(memory.gpus) == {"a", "b"}
    assert len(memory.nics) == 3
    assert memory.answered == ("efa", "nvml")


def test_an_exchanged_gpu_is_forgotten_once_the_count_is_complete_without_it() -> None:
    memory = remember(NOTHING, gpus("a", "b"), "nvml", Expected(gpus=2))
    memory = remember(memory, gpus("a", "c"), "nvml", Expected(gpus=2))
    assert set(memory.gpus) == {"a", "c"}


def test_what_the_bus_shows_without_uuids_changes_no_names() -> None:
    memory = remember(NOTHING, gpus("a"), "nvml", Expected())
    assert remember(memory, gpus(""), "pci", Expected()).gpus == memory.gpus


def test_the_memory_of_one_machine_is_worth_nothing_on_another(tmp_path: Path) -> None:
    file = MemoryFile(tmp_path / "machine.json")
    assert file.read("s1") == NOTHING
    kept = remember(NOTHING, gpus("a"), "nvml", Expected())
    file.write(kept)
    assert MemoryFile(tmp_path / "machine.json").read("s1") == kept
    assert file.read("s2") == MachineMemory(serial="s2")
    (tmp_path / "machine.json").write_text("{")
    assert file.read("s1") == NOTHING


def test_a_disk_that_cannot_be_written_does_not_stop_the_agent(tmp_path: Path) -> None:
    MemoryFile(tmp_path / "no" / "machine.json").write(NOTHING)


def test_an_expectation_is_read_and_nonsense_is_named() -> None:
    assert parse_expect(["gpus=8,efa=32"]) == Expected(gpus=8, nics=32)
    assert parse_expect([""]) == Expected()
    assert parse_expect([" gpus = 8 ,", "efa-gbps=100", "gpus=8"]) == Expected(gpus=8, efa_gbps=100)
    for text in ("gpus", "gpus=x", "tpus=8", "gpus=-1", "gpus=\N{FULLWIDTH DIGIT EIGHT}", "gpus=123456", "gpus=8.0"):
        with pytest.raises(ValueError, match="is not an expectation"):
            parse_expect([text])


def test_an_expectation_that_contradicts_another_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="'gpus=4' contradicts"):
        parse_expect(["gpus=8,efa=32", "gpus=4"])
