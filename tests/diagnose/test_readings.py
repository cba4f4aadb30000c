"""What of the expectations nothing that was given can check."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetwell.diagnose import readings
from fleetwell.diagnose.examination import Examination
from fleetwell.probes.inventory import Expected


@pytest.fixture
def examination() -> Examination:
    return Examination()


def open_questions(examination: Examination, must: Expected) -> list[str]:
    readings.say_what_is_missing(examination, must)
    return [said.partition(":")[0] for said in examination.answer().blind if said.startswith("whether all")]


def test_adapters_that_no_tree_was_given_to_count_are_an_open_question(examination: Examination) -> None:
    assert open_questions(examination, Expected(nics=32, infiniband=8)) == [
        "whether all 32 EFA interfaces are there",
        "whether all 8 InfiniBand adapters are there",
    ]


def test_adapters_that_were_counted_are_none(examination: Examination, tmp_path: Path) -> None:
    must = Expected(nics=1, infiniband=1)
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    readings.host_tree(examination, tmp_path, must)
    assert open_questions(examination, must) == []
    assert {one.fault for one in examination.answer().findings} == {"EfaMissing", "NicMissing"}
