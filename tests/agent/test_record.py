"""The record of operations on the node's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetwell.agent.record import COMPACT_BYTES, COMPACT_KEEP, Began, OperationRecord
from fleetwell.api.node_operation import NodeOperationStatus, OperationKind, OperationPhase


def began(number: int = 1) -> Began:
    return Began(
        operation_id=f"op-{number}", name=f"name-{number}", kind=OperationKind.REBOOT, boot_id="boot-1", at=1.0
    )


DONE = NodeOperationStatus(phase=OperationPhase.SUCCEEDED, message="done")


def test_what_was_begun_and_ended_is_there_for_the_next_agent(tmp_path: Path) -> None:
    record = OperationRecord(tmp_path / "record")
    record.begin(began(1))
    record.begin(began(2))
    record.end("op-1", DONE)
    again = OperationRecord(tmp_path / "record")
    first, second = again.get("op-1"), again.get("op-2")
    assert first is not None
    assert first.result == DONE
    assert second is not None
    assert second.result is None
    assert again.get("op-3") is None


def test_what_is_begun_is_on_the_disk_before_anything_is_done_and_so_is_the_name_of_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record"
    synced: list[tuple[int, int]] = []
    """Which file or folder was flushed to the disk, and how long the record was then."""
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append((os.fstat(fd).st_ino, path.stat().st_size)))
    record = OperationRecord(path)
    record.begin(began(1))
    file, folder = path.stat().st_ino, tmp_path.stat().st_ino
    assert synced == [(file, path.stat().st_size), (folder, path.stat().st_size)]
    record.end("op-1", DONE)
    assert synced[2:] == [(file, path.stat().st_size)]


def test_a_result_that_the_disk_does_not_take_is_known_to_this_agent(tmp_path: Path) -> None:
    path = tmp_path / "record"
    record = OperationRecord(path)
    record.begin(began(1))
    path.unlink()
    path.symlink_to("/dev/full")
    record.end("op-1", DONE)
    entry = record.get("op-1")
    assert entry is not None
    assert entry.result == DONE


def test_a_line_that_was_cut_off_is_ignored_and_the_next_one_still_read(tmp_path: Path) -> None:
    path = tmp_path / "record"
    record = OperationRecord(path)
    record.begin(began(1))
    record.end("op-1", DONE)
    path.write_bytes(path.read_bytes()[:-9])
    again = OperationRecord(path)
    entry = again.get("op-1")
    assert entry is not None
    assert entry.result is None
    again.begin(began(2))
    again.begin(began(3))
    assert OperationRecord(path).get("op-2") is not None
    assert OperationRecord(path).get("op-3") is not None


def test_a_damaged_line_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "record"
    OperationRecord(path).begin(began(1))
    path.write_bytes(path.read_bytes().replace(b"op-1", b"op-9"))
    assert OperationRecord(path).get("op-9") is None


def test_a_long_record_is_shortened_to_its_newest_entries_with_their_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record"
    record = OperationRecord(path)
    for number in range(COMPACT_KEEP + 1):
        record.begin(began(number))
        record.end(f"op-{number}", DONE)
    record.begin(began(999))
    lines = path.read_bytes()
    path.write_bytes(lines * (COMPACT_BYTES // len(lines) + 1))
    synced: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append((os.fstat(fd).st_ino, os.fstat(fd).st_size)))
    OperationRecord(path)
    assert synced[0] == (path.stat().st_ino, path.stat().st_size)
    assert [one for one, _ in synced] == [path.stat().st_ino, tmp_path.stat().st_ino]
    assert path.stat().st_size < len(lines)
    shortened = OperationRecord(path)
    assert [shortened.get(f"op-{number}") for number in (0, 1)] == [None, None]
    entry, open_one = shortened.get(f"op-{COMPACT_KEEP}"), shortened.get("op-999")
    assert entry is not None
    assert entry.result == DONE
    assert open_one is not None
    assert open_one.result is None


def test_a_record_that_cannot_be_shortened_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "record"
    record = OperationRecord(path)
    record.begin(began(1))
    lines = path.read_bytes()
    path.write_bytes(lines * (COMPACT_BYTES // len(lines) + 1))
    path.with_suffix(".new").symlink_to("/dev/full")
    assert OperationRecord(path).get("op-1") is not None
    assert path.stat().st_size > COMPACT_BYTES
