"""The decode of NVLink registers, row by row and by the vectors of public reports."""

import pytest

from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.nvlink5 import ROWS, Layout, decode
from fleetwell.health.vocabulary import Recovery, Verdict

CASES = [(row, layout, status) for row in ROWS for layout in Layout for status in (row.statuses or (0,))]
RECOVERIES = {
    "IGNORE": Recovery.NONE,
    "RESET_GPU": Recovery.RESET_GPU,
    "XID_154_EVAL": Recovery.RESTART_WORKLOAD,
}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_row_is_read_back_from_a_line_in_both_layouts(number: int) -> None:
    row, layout, status = CASES[number]
    word = row.patterns[layout].value
    branch = 570 if layout is Layout.V1 else 580
    decoded = decode(row.xid, word, status, branch)
    assert decoded is not None
    assert (decoded.action, decoded.layout) == (row.action, layout)
    unit = row.unit.split("/")[0]
    line = f"NVRM: Xid (PCI:0018:01:00): {row.xid}, {unit} Nonfatal XC0 i0 Link 08 (0x{word:08x} 0x{status:08x} 0x0)"
    (seen,) = KernelLogReader(driver_branch=branch).read(line, 1.0)
    assert seen.recovery is RECOVERIES[row.action]
    assert seen.component == "nvlink/pci-0018:01:00/8"


def test_the_second_pattern_of_a_row_asks_for_a_reset() -> None:
    (row,) = [row for row in ROWS if row.second and row.statuses == (1,)]
    for layout, branch in ((Layout.V1, 570), (Layout.V2, 580)):
        decoded = decode(145, row.second[layout].value, 1, branch)
        assert decoded is not None
        assert decoded.action == "RESET_GPU"


def test_link_down_by_reason_4_is_a_reset_and_by_reason_33_the_peers_fault() -> None:
    own, peer = decode(149, 0x004505C6, 0), decode(149, 0x021425C6, 0)
    assert own is not None
    assert peer is not None
    assert (own.action, own.reason, own.blames_peer, own.layout) == ("RESET_GPU", 4, False, Layout.V1)
    assert (peer.action, peer.reason, peer.blames_peer) == ("RESET_GPU", 33, True)


@pytest.mark.parametrize("branch", [None, 570, 575])
def test_a_wrongly_known_driver_branch_does_not_lose_the_decode(branch: int | None) -> None:
    decoded = decode(145, 0x04082907, 0x8, branch)
    assert decoded is not None
    assert decoded.action == "XID_154_EVAL"


def test_several_status_bits_ask_for_the_strongest_of_their_rows() -> None:
    both = decode(145, 0b111, 0x1 | 0x2)
    assert both is not None
    assert both.action == "RESET_GPU"


def test_a_status_bit_that_no_row_has_is_not_a_pass() -> None:
    assert decode(145, 0b111, 0x2 | 0x4000) is None
    assert decode(144, 0x3F, 0x1) is None


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x0fffffff 0x00000000 0x0)",
        "NVRM: Xid (PCI:0018:01:00): 144, SAW_MVB Nonfatal",
        "NVRM: Xid (PCI:0018:01:00): 146",
    ],
)
def test_what_no_row_explains_is_unknown_and_asks_for_a_person(line: str) -> None:
    (seen,) = KernelLogReader().read(line, 1.0)
    assert (seen.fault, seen.verdict, seen.recovery) == ("NvlinkUndecoded", Verdict.UNKNOWN, Recovery.SUPPORT)
