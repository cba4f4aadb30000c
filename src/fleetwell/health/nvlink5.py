"""Decodes the registers of NVLink errors on Blackwell and newer (Xid 144 to 150) by the table ``nvlink5.csv``.

The layout of the first register changed with driver branch 575, and public tools read the wrong bits of it. The
driver's own layout is tried first and then the other one, since a caller may know the driver wrongly or not at all;
what no row explains is not a pass.
"""

from __future__ import annotations

import csv
import enum
from typing import Final, NamedTuple

import msgspec

from fleetwell.health.catalogue import read_data

_REASON_SHIFT: Final = 20
_REASON_MASK: Final = 0x3F
_BITMASK_XIDS: Final = range(144, 149)
_FIRST_V2_BRANCH: Final = 575


class Layout(enum.Enum):
    """Layout of the first register."""

    V1 = "before R575"
    V2 = "R575 and newer"


class _Pattern(NamedTuple):
    mask: int
    value: int

    def matches(self, word: int) -> bool:
        return word & self.mask == self.value


class _Row(msgspec.Struct, frozen=True):
    xid: int
    unit: str
    patterns: dict[Layout, _Pattern]
    second: dict[Layout, _Pattern]
    statuses: tuple[int, ...]
    action: str
    second_action: str
    investigatory: str
    severity: str


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """What the table says of one line."""

    action: str
    """``IGNORE``, ``RESET_GPU``, or ``XID_154_EVAL``: as the driver's Xid 154 says, else restart the application."""
    unit: str
    investigatory: str
    severity: str
    layout: Layout
    reason: int | None
    """Why the link went down, of a link event."""

    @property
    def blames_peer(self) -> bool:
        """Whether the table points at the device at the other end of the link."""
        return self.investigatory == "INVESTIGATE_PEER_DEVICE"


def _pattern(text: str) -> _Pattern:
    mask = int("".join("0" if bit == "-" else "1" for bit in text), 2)
    return _Pattern(mask, int(text.replace("-", "0"), 2))


def _patterns(v1: str, v2: str) -> dict[Layout, _Pattern]:
    return {layout: _pattern(text) for layout, text in ((Layout.V1, v1), (Layout.V2, v2)) if text}


def _read() -> tuple[_Row, ...]:
    return tuple(
        _Row(
            xid=int(row["xid"]),
            unit=row["unit"],
            patterns=_patterns(row["pattern_v1"], row["pattern_v2"]),
            second=_patterns(row["second_pattern_v1"], row["second_pattern_v2"]),
            statuses=tuple(int(status, 16) for status in row["error_status"].split("/") if status),
            action=row["action"],
            second_action=row["second_action"],
            investigatory=row["investigatory"],
            severity=row["severity"],
        )
        for row in csv.DictReader(read_data("nvlink5.csv").splitlines())
    )


ROWS: Final = _read()
_CANDIDATES: Final = {
    (xid, layout): tuple((row, row.patterns[layout], row.second.get(layout)) for row in ROWS if row.xid == xid)
    for xid in {row.xid for row in ROWS}
    for layout in Layout
}
_STRENGTH: Final = ("IGNORE", "XID_154_EVAL", "RESET_GPU")


def layout_of(driver_branch: int | None) -> Layout:
    """Give the register layout of a driver branch (``570``, ``575`` …); the newer one where it is not known."""
    return Layout.V1 if driver_branch is not None and driver_branch < _FIRST_V2_BRANCH else Layout.V2


def decode(xid: int, intr_info: int, error_status: int, driver_branch: int | None = None) -> Decoded | None:
    """Decode an NVLink line's first two registers; None where no row explains them."""
    own = layout_of(driver_branch)
    other = Layout.V1 if own is Layout.V2 else Layout.V2
    return _decode(xid, intr_info, error_status, own) or _decode(xid, intr_info, error_status, other)


def _decode(xid: int, intr_info: int, error_status: int, layout: Layout) -> Decoded | None:
    # A second pattern of a row, with a bit more set than the first, changes that row's action.
    candidates: list[tuple[_Row, str]] = []
    for row, first, second in _CANDIDATES.get((xid, layout), ()):
        if first.matches(intr_info):
            candidates.append((row, row.action))
        elif second is not None and second.matches(intr_info):
            candidates.append((row, row.second_action))
    found = [(row, action) for row, action in candidates if not row.statuses or error_status in row.statuses]
    if not found and xid in _BITMASK_XIDS:
        found = _by_bits(candidates, error_status)
    if not found:
        return None
    row, action = max(found, key=lambda pair: _STRENGTH.index(pair[1]))
    return Decoded(
        action=action,
        unit=row.unit,
        investigatory=row.investigatory,
        severity=row.severity,
        layout=layout,
        reason=intr_info >> _REASON_SHIFT & _REASON_MASK if "LINK_EVT" in row.unit else None,
    )


def _by_bits(candidates: list[tuple[_Row, str]], error_status: int) -> list[tuple[_Row, str]]:
    """Find the rows of a status with several bits set. A bit that no row has leaves only what asks for a reset."""
    found = [pair for pair in candidates if any(status & error_status for status in pair[0].statuses)]
    explained = 0
    for row, _ in found:
        for status in row.statuses:
            explained |= status
    if error_status & ~explained:
        return [pair for pair in found if pair[1] == "RESET_GPU"]
    return found
