"""Tells by the bytes of an Xid line what decides about it, so that lines that say the same need not be read again."""

from __future__ import annotations

import re
from typing import Final

from fleetwell.health.bursts import REPETITION_BY_UNIT
from fleetwell.health.catalogue import XIDS, for_xid
from fleetwell.health.vocabulary import Verdict

SHAPE: Final = re.compile(rb"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{7,20})\): (\d{1,6})(?:, pid=(\d{1,10}),|,|\s|\Z)")
"""Address, number and process of a line about a whole GPU."""
NUMBER_BEFORE: Final = 22
"""No comma stands in an Xid line before this, and the first one stands behind its number."""
UNKNOWN_NUMBER: Final = b"?"
READ_WHOLE: Final = frozenset(b"%d" % xid for xid in (13, 74, *range(144, 151), 154))
"""Codes whose line says more than its number."""
BY_OWNER: Final = frozenset(b"%d" % xid for xid in REPETITION_BY_UNIT)
"""Codes that are told apart by process."""


def _kind(xid: int) -> bytes:
    verdict, number = for_xid(xid).verdict, b"%d" % xid
    if verdict is Verdict.BAD or number in READ_WHOLE:
        return number
    return UNKNOWN_NUMBER if verdict is Verdict.UNKNOWN else b"-"


KINDS: Final = {b"%d" % xid: _kind(xid) for xid in XIDS}
"""What tells a code from others where a log holds more addresses than a machine can have."""
