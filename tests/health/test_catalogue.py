"""The catalogue's data: complete, consistent, and nowhere silently different from the vendor's advice."""

import re

import pytest

from fleetwell.health.catalogue import (
    BUCKETS,
    CATALOGUE,
    UNKNOWN_XID,
    XIDS,
    Architecture,
    FaultClass,
    UnknownFaultError,
    fault,
    fault_or_unknown,
    for_xid,
)
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.nvlink5 import ROWS
from fleetwell.health.vocabulary import Clears, Recovery, Verdict


def test_there_are_all_176_codes_and_95_decode_rows() -> None:
    assert tuple(range(1, 177)) == XIDS
    assert len(ROWS) == 95


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=lambda entry: entry.name)
def test_every_fault_says_what_it_means_in_whole_sentences(entry: object) -> None:
    known = fault(str(getattr(entry, "name", "")))
    assert re.fullmatch(r"[A-Z][A-Za-z0-9]{2,47}", known.name)
    assert known.means.endswith(".")
    assert known.action.endswith(".")
    assert known.source
    k, n = known.debounce
    assert 1 <= k <= n


def test_a_fault_that_ages_out_says_after_how_long_and_no_other_does() -> None:
    assert all((one.clears is Clears.TIME) == (one.seconds > 0) for one in CATALOGUE.values())


def test_what_applications_did_ages_out_and_never_asks_for_more_than_a_restart() -> None:
    for one in CATALOGUE.values():
        if one.fault_class is FaultClass.APPLICATION:
            assert one.clears is Clears.TIME
            assert one.recovery.rank <= Recovery.RESTART_WORKLOAD.rank
            assert not one.touches_node


def test_what_is_unintelligible_is_never_more_than_unknown_and_asks_for_a_person() -> None:
    for one in CATALOGUE.values():
        if one.unintelligible:
            assert one.verdict is Verdict.UNKNOWN
            assert one.recovery is Recovery.SUPPORT


@pytest.mark.parametrize("xid", XIDS)
def test_a_code_asks_for_what_its_bucket_says_unless_a_departure_gives_a_reason(xid: int) -> None:
    rule = for_xid(xid)
    entry = fault(rule.fault)
    verdict, recovery = BUCKETS[rule.bucket]
    if rule.departure:
        assert (rule.verdict, rule.recovery) != (verdict, recovery)
    else:
        assert rule.recovery is recovery
    if rule.recovery.rank >= Recovery.RESET_GPU.rank:
        assert entry.touches_node
        assert entry.clears in {Clears.BOOT, Clears.REMEDY}
        assert rule.verdict in {Verdict.BAD, Verdict.UNKNOWN}
    else:
        assert rule.verdict in {Verdict.OK, Verdict.CONFIG}
        assert entry.clears is Clears.TIME


@pytest.mark.parametrize("xid", [xid for xid in XIDS if xid != 154 and xid not in range(144, 151)])
def test_a_line_of_every_code_is_read_back_to_its_rule(xid: int) -> None:
    line = f"NVRM: Xid (PCI:0000:3f:00): {xid}, pid=77, name=python3, Ch 00000008"
    (seen,) = KernelLogReader(gpus={"0000:3F:00.0": "GPU-x"}).read(line, 5.0)
    rule = for_xid(xid)
    assert (seen.fault, seen.verdict, seen.recovery) == (rule.fault, rule.verdict, rule.recovery)
    assert (seen.component, seen.xid, seen.pid) == ("gpu/GPU-x", xid, 77)


@pytest.mark.parametrize("xid", [1, 56, 162, 172, 177, 999999])
def test_unused_blank_and_newer_codes_block_new_work_and_ask_for_a_person(xid: int) -> None:
    rule = for_xid(xid)
    assert (rule.fault, rule.verdict, rule.recovery) == (UNKNOWN_XID, Verdict.UNKNOWN, Recovery.SUPPORT)


def test_a_failed_row_remap_asks_for_another_board() -> None:
    rule = for_xid(64)
    assert rule.recovery is Recovery.REPLACE
    assert rule.departure


def test_the_rule_says_whether_an_architecture_can_log_the_code() -> None:
    assert for_xid(136, Architecture.HOPPER).expected is True
    assert for_xid(136, Architecture.AMPERE).expected is False
    assert for_xid(173, Architecture.HOPPER).expected is None
    assert for_xid(136).expected is None


def test_a_fault_of_another_version_neither_stops_the_agent_nor_passes() -> None:
    with pytest.raises(UnknownFaultError, match="no fault named 'GpuFromTheFuture'"):
        fault("GpuFromTheFuture")
    stand_in = fault_or_unknown("GpuFromTheFuture")
    assert stand_in.verdict is Verdict.UNKNOWN
    assert stand_in.name == "GpuFromTheFuture"
