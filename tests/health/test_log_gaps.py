"""Where records are missing is found, and few of them are looked at for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetwell.health import kmsg_record, log_gaps
from fleetwell.health.log_gaps import breaks


@given(st.lists(st.integers(0, 3), max_size=40))
def test_breaks_are_where_numbers_do_not_follow(skips: list[int]) -> None:
    number, raws = 7, []
    for skip in skips:
        number += 1 + skip
        raws.append(b"6,%d,1,-;x\n" % number)
    wanted = [(raws[at - 1] if at else None, raw) for at, raw in enumerate(raws) if not at or skips[at]]
    assert breaks(raws) == wanted


def test_what_has_no_number_breaks_nothing() -> None:
    raws = [b"6,8,1,-;x", b"garbage", b"6,9,1,-;x", b"6,12,1,-;x"]
    assert breaks(raws) == [(None, raws[0]), (raws[2], raws[3])]
    assert breaks([b"garbage"]) == []


def test_numbers_that_begin_anew_are_a_break() -> None:
    raws = [b"6,8,1,-;x", b"6,9,1,-;x", b"6,1,1,-;x", b"6,2,1,-;x"]
    assert breaks(raws) == [(None, raws[0]), (raws[1], raws[2])]


def test_few_records_are_looked_at_where_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(raw: bytes, number: int) -> int:
        nonlocal looks
        looks += 1
        return kmsg_record.header_number(raw, number)

    monkeypatch.setattr(log_gaps, "header_number", counted)
    raws = [b"6,%d,1,-;x\n" % (n if n < 3000 else n + 5) for n in range(4096)]
    assert breaks(raws) == [(None, raws[0]), (raws[2999], raws[3000])]
    assert looks < 20
