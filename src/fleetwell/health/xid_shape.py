"""Tells by the bytes of an Xid line what decides about it, so that lines that say the same need not be read again."""

from __future__ import annotations

import re
from typing import Final

from fleetwell.health.bursts import REPETITION_BY_UNIT
from fleetwell.health.catalogue import XIDS, for_xid
from fleetwell.health.device_names import MAX_UNKNOWN
from fleetwell.health.vocabulary import Verdict

SHAPE: Final = re.compile(rb"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{7,20})\): (\d{1,6})(?:, pid=(\d{1,10}),|,|\s|\Z)")
"""Address, number and process of a line about a whole GPU."""
NUMBER_BEFORE: Final = 22
"""No comma stands in an Xid line before this, and the first one stands behind its number."""
_UNKNOWN_NUMBER: Final = b"?"
READ_WHOLE: Final = frozenset(b"%d" % xid for xid in (13, 74, *range(144, 151), 154))
"""Codes whose line says more than its number."""
BY_OWNER: Final = frozenset(b"%d" % xid for xid in REPETITION_BY_UNIT)
"""Codes that are told apart by process."""


def _kind(xid: int) -> bytes:
    verdict, number = for_xid(xid).verdict, b"%d" % xid
    if verdict is Verdict.BAD or number in READ_WHOLE:
        return number
    return _UNKNOWN_NUMBER if verdict is Verdict.UNKNOWN else b"-"


_KINDS: Final = {b"%d" % xid: _kind(xid) for xid in XIDS}
ELSEWHERE: Final = b"*"
"""The place of all addresses that are more than a machine can have."""


def kind_of(number: bytes, place: bytes) -> bytes:
    """Give what tells a code from others at a place."""
    if place is ELSEWHERE:
        return _KINDS.get(number, _UNKNOWN_NUMBER)
    return number if number in _KINDS else _UNKNOWN_NUMBER


class Places:
    """The addresses in a log: as many as a machine can have are told apart.

    :param known: addresses, as the driver prints them, of the GPUs that a probe or the log has named.
    """

    def __init__(self, known: frozenset[bytes] = frozenset()) -> None:
        self.spelled: dict[bytes, bytes] = {}
        """The one spelling of each; while there are more than a machine can have, what is not here is elsewhere."""
        self._known = known
        self._most = MAX_UNKNOWN + 6 * len(known)
        for spelled in (known, {one.upper() for one in known}):
            self.spelled |= {one + function: one.lower() for one in spelled for function in (b"", b".0")}

    def of(self, address: bytes) -> bytes:
        """Give the one spelling of an address, or ``ELSEWHERE``."""
        place = self.spelled.get(address)
        if place is None:
            place = address.lower().removesuffix(b".0")
            if len(self.spelled) >= self._most and place not in self._known:
                return ELSEWHERE
            self.spelled[address] = place
        return place

    def is_known(self, place: bytes) -> bool:
        """Say whether a GPU is known to be there."""
        return place in self._known
