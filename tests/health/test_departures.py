"""The page of departures says what the data says, all of it and nothing else."""

import re
from pathlib import Path

from fleetwell.health.catalogue import BUCKETS, XIDS, for_xid
from fleetwell.health.vocabulary import Recovery, Verdict

PAGE = (Path(__file__).parents[2] / "docs" / "departures.md").read_text(encoding="utf-8")
FOLLOWED = {"IGNORE", "RESET_GPU", "CHECK_MECHANICALS", "UPDATE_SWFW"}
"""Words of the vendor that we take as they are."""


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in row] for row in cells[1:]]


def test_every_code_that_departs_is_on_the_page_with_its_reason() -> None:
    listed = {int(xid): (says, Recovery(asks), why) for xid, says, asks, why in rows("By code")}
    departures = {xid: (rule.bucket, rule.recovery, rule.departure) for xid in XIDS if (rule := for_xid(xid)).departure}
    assert listed == departures


def test_every_word_of_the_vendor_that_is_taken_otherwise_is_on_the_page() -> None:
    listed = {
        "" if word == "(none)" else word: (Verdict(verdict), Recovery(asks))
        for word, verdict, asks, _ in rows("By bucket")
    }
    assert listed == {word: what for word, what in BUCKETS.items() if word not in FOLLOWED}


def test_every_reason_is_a_whole_sentence() -> None:
    for row in (*rows("By code"), *rows("By bucket")):
        assert re.fullmatch(r"[A-Z0-9].{20,}\.", row[-1])
