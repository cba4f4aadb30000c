from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fleetwell.train.fencing import Claim, Fence, newest, take
from fleetwell.train.protocol import History
from fleetwell.train.run_record import RunRecord


def test_two_takers_never_get_the_same_number(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda index: take(tmp_path, Claim("run", index)), range(40)))
    assert sorted(numbers) == list(range(1, 41))


def test_a_torn_claim_still_counts(tmp_path: Path) -> None:
    take(tmp_path, Claim("run", 1))
    (tmp_path / "0000000005").touch()
    assert newest(tmp_path) == Fence(5, None)
    assert take(tmp_path, Claim("run", 2)) == 6


def test_a_number_can_be_asked_to_be_at_least_what_others_remember(tmp_path: Path) -> None:
    assert take(tmp_path, Claim(), at_least=7) == 7
    assert take(tmp_path, Claim(), at_least=3) == 8


def test_a_run_record_tells_a_successor_how_far_the_run_came(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "job", clock=lambda: 5.0)
    assert record.read() == (History(), 0)
    assert record.number_after(1) == 1
    record.append("generation_started", {"generation": 1})
    assert record.read() == (History(generation=1), 1)
    record.append("generation_ended", {"generation": 1, "reason": "drain", "last_step": 9, "saved_step": 8})
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"event":"generation_sta')
    assert record.read() == (History(1, 0, 9, 8), 0)


def test_without_a_run_directory_numbers_come_from_memory() -> None:
    record = RunRecord(None, "job")
    record.append("anything", {})
    assert record.number_after(4) == 4
    assert record.read() == (History(), 0)
