"""A disk that takes nothing more: no deed without its record, and everything else goes on."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.test_operations import Bench
from fleetwell.agent.record import Began, OperationRecord
from fleetwell.api.node_operation import OperationKind, OperationPhase
from fleetwell.probes.inventory import MachineMemory, MemoryFile

FULL = "/dev/full"
"""Every write to it fails as on a disk that is full. It is put in a file's place once that was read: it has no end."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of one page."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)], check=False)
    if made.returncode:
        pytest.skip("this machine mounts no tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def began(number: int) -> Began:
    return Began(operation_id=f"op-{number}", name="op", kind=OperationKind.RESET_GPU, boot_id="boot-1", at=1.0)


@pytest.mark.parametrize("kind", list(OperationKind))
async def test_without_room_for_its_record_nothing_is_done_and_the_reason_is_told(
    tmp_path: Path, kind: OperationKind
) -> None:
    bench = Bench(tmp_path)
    agent = bench.agent()
    bench.path.symlink_to(FULL)
    bench.ask(kind)
    await agent.handle("op")
    assert bench.deeds.done == []
    assert bench.status.phase is OperationPhase.REFUSED
    assert "No space left on device" in bench.status.message


async def test_the_agent_does_the_next_operation_when_there_is_room_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    agent = bench.agent()
    bench.path.symlink_to(FULL)
    bench.ask()
    await agent.handle("op")
    phases = [bench.status.phase]
    bench.path.unlink()
    bench.ask(operation_id="op-2")
    agent._settled.clear()
    await agent.handle("op")
    phases.append(bench.status.phase)
    assert phases == [OperationPhase.REFUSED, OperationPhase.SUCCEEDED]


async def test_a_result_that_finds_no_room_is_still_reported(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ask()

    def fill() -> None:
        bench.path.unlink()
        bench.path.symlink_to(FULL)

    bench.deeds.after = fill
    await bench.agent().handle("op")
    assert bench.status.phase is OperationPhase.SUCCEEDED


def test_what_was_seen_of_the_machine_is_kept_in_memory_when_it_cannot_be_written(tmp_path: Path) -> None:
    file = MemoryFile(tmp_path / "machine.json")
    for name in ("machine.json.new", "machine.new", ".machine.json.new"):
        (tmp_path / name).symlink_to(FULL)
    file.write(MachineMemory(serial="s", most_gpus=8))
    assert not (tmp_path / "machine.json").exists()
    assert file.read("s").most_gpus == 0


@pytest.mark.root
def test_a_line_that_was_cut_off_by_a_full_disk_spoils_no_other_one(small_disk: Path) -> None:
    path = small_disk / "operations.jsonl"
    record = OperationRecord(path)
    kept = 0
    with pytest.raises(OSError, match="No space left") as failed:  # noqa: PT012 (until there is no room)
        while True:
            record.begin(began(kept))
            kept += 1
    assert failed.value.errno == errno.ENOSPC
    assert kept > 5
    again = OperationRecord(path)
    assert again.get(f"op-{kept - 1}") is not None
    assert again.get(f"op-{kept}") is None
    subprocess.run(["mount", "-o", "remount,size=64k", str(small_disk)], check=True)
    again.begin(began(1000))
    newest = OperationRecord(path)
    assert newest.get("op-1000") is not None
    assert newest.get(f"op-{kept - 1}") is not None
