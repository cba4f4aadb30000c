"""The record of operations on the node's disk."""

from __future__ import annotations

from pathlib import Path

from fleetwell.agent.record import COMPACT_KEEP, Began, OperationRecord
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
    assert OperationRecord(path).get("op-2") is not None


def test_a_damaged_line_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "record"
    OperationRecord(path).begin(began(1))
    path.write_bytes(path.read_bytes().replace(b"op-1", b"op-9"))
    assert OperationRecord(path).get("op-9") is None


def test_a_long_record_is_shortened_to_its_newest_entries(tmp_path: Path) -> None:
    path = tmp_path / "record"
    record = OperationRecord(path)
    record.begin(began(1))
    record.end("op-1", DONE)
    lines = path.read_bytes()
    path.write_bytes(lines * (300_000 // len(lines)))
    newest = OperationRecord(path)
    assert path.stat().st_size < 300_000 / COMPACT_KEEP
    assert newest.get("op-1") is not None
