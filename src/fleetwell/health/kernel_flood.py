"""Reads raw records of ``/dev/kmsg`` at a cost that a flood cannot raise.

800,000 lines at once must be a few findings and three seconds of work. So a line without a mark is passed over
by its bytes, a line that says what another one of the same window said is counted and not read, and of lines that all
differ only the first of each kind and a share of the others are read. A burst, however wild, is read whole: the share
is a bucket that only a flood empties, and that the kernel's own clock fills again, however fast or slowly the lines are
brought here. What was not read is said (``KernelLogFlood``).

What may be counted without reading: a settled line that is equal to the last byte, and an Xid line of the same address
and number where nothing else in the line decides.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Final

import msgspec

from fleetwell.health.flood_tally import UNSEEN, Slot, Tally
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.kmsg_record import has_form, header_number, parse_record
from fleetwell.health.line_marks import ANYWHERE, BY_START, XID
from fleetwell.health.line_rates import RATES
from fleetwell.health.log_gaps import breaks
from fleetwell.health.vocabulary import Observation
from fleetwell.health.xid_shape import BY_OWNER, ELSEWHERE, NUMBER_BEFORE, READ_WHOLE, SHAPE, Places, kind_of

PIECE: Final = 4096
"""Records after which what was counted is told, at the latest."""
PIECE_USEC: Final = 2_000_000
"""And microseconds of the kernel's clock: order in time is kept to seconds, far below the span of a burst."""
_WINDOW: Final = 4 * PIECE
"""Records over which lines are counted together, at most."""
_WINDOW_USEC: Final = 10_000_000
"""Microseconds over which they are, at most."""
_BURST: Final = 1024
"""Lines beyond the first of their kind that are read one by one, before only a share of them is."""
_SHARE: Final = 32
"""By how many the bucket fills again with each window that was full."""
_USEC_EACH: Final = 100_000
"""And by one for each so many microseconds: what comes no faster is read whole."""
_FIRSTS: Final = 64
"""Kinds of lines of which the first is read in each window, not counting those of GPUs that are known."""
_FROM_KERNEL: Final = frozenset(b"%d," % level for level in range(8))
"""Priorities 0 to 7 are of facility 0."""
_MAX_KEPT: Final = 1024
"""Bytes of a record that is kept to know it again: longer ones are read each time, or not at all."""
_MAX_SHORT: Final = 4096
_ANY: Final = b"*"

_Group = tuple[bytes, bytes]
_Key = bytes | tuple[bytes, ...]


class KernelFlood:
    """Gives the observations of batches of raw records, through a reader."""

    def __init__(self, reader: KernelLogReader, *, burst: int = _BURST) -> None:
        """Begin.

        :param burst: lines beyond the first of their kind that are read one by one before only a share of them is.
        """
        self.reader = reader
        self._burst = burst
        self.dropped = 0
        """Records without the kernel's form."""
        self._seen: list[Observation] = []
        self._tally = Tally(self._at)
        self._slots: dict[_Key, Slot] = {}
        self._latest: dict[_Group, Slot | None] = {}
        """What further lines of a kind are counted on; None where each says something of its own."""
        self._places = Places()
        self._short: dict[bytes, Slot | None] = {}
        """The same by how an Xid line begins, up to the comma behind its number; None where it is not read any more."""
        self._elsewhere: dict[bytes, Slot | None] = {}
        """The same by its number, of all addresses that are more than a machine can have."""
        self._spent: set[bytes] = set()
        """Marks of lines that are not read any more in this window."""
        self._version = -1
        self._left = 0
        self._began = 0
        """When the window began, in microseconds."""
        self._bucket = burst
        self._firsts = 0
        self._unread = 0

    def read(self, raws: Sequence[bytes]) -> tuple[Observation, ...]:
        """Read records as the device gives them, the next ones in order."""
        start = 0
        while start < len(raws):
            usec, end = _usec(raws[start]), min(start + PIECE, len(raws))
            if _usec(raws[end - 1]) - usec > PIECE_USEC:
                end = bisect.bisect(raws, usec + PIECE_USEC, start + 1, end, key=_usec)
            piece = raws[start:end]
            over = self._left <= 0 or abs(usec - self._began) > _WINDOW_USEC
            if over or self._version != self.reader.names.version:
                self._renew(usec)
            self._left -= len(piece)
            self._gaps(piece)
            self._piece(piece)
            self._tell(piece[-1])
            start = end
        seen = tuple(self._seen)
        self._seen.clear()
        return seen

    def _renew(self, usec: int) -> None:
        share = abs(usec - self._began) // _USEC_EACH + (_SHARE if self._left <= 0 else 0)
        self._bucket = min(self._burst, self._bucket + share)
        self._left, self._began = _WINDOW, usec
        self._slots.clear()
        self._latest.clear()
        self._short.clear()
        self._elsewhere.clear()
        self._spent.clear()
        self._firsts = 0
        if self._version != self.reader.names.version:
            self._version = self.reader.names.version
            self._places = Places(self.reader.names.known())

    def _gaps(self, raws: Sequence[bytes]) -> None:
        """Say what is missing: the first gap by itself, and the latest with how many more there were."""
        gaps: list[Observation] = []
        for before, raw in breaks(raws):
            if before is not None:
                self.reader.last_sequence = header_number(before, 1)
            gaps += self.reader.missing(header_number(raw, 1), self._at(_usec(raw)))
        newest = header_number(raws[-1], 1)
        if newest >= 0:
            self.reader.last_sequence = newest
        self._seen += gaps[:1]
        if len(gaps) > 1:
            self._seen.append(msgspec.structs.replace(gaps[-1], times=len(gaps) - 1))

    def _piece(self, raws: Sequence[bytes]) -> None:  # noqa: C901, PLR0912 (one loop over a flood: calls would double it)
        slots, short, spent, waiting, by_start = self._slots, self._short, self._spent, self._tally.waiting, BY_START
        elsewhere, spelled = self._elsewhere, self._places.spelled
        before: bytes | None = None
        slot: Slot | None = None
        unread = 0
        for raw in raws:
            if raw[:2] not in _FROM_KERNEL:
                if not has_form(raw):
                    self.dropped += 1
                continue  # User space wrote it, or nobody.
            head, _, body = raw.partition(b";")
            if body != before:
                before = None
                slot = slots.get(body)
                if slot is None and body.startswith(XID):
                    begin = body[: body.find(b",", NUMBER_BEFORE) + 1]
                    slot = short.get(begin, UNSEEN)
                    if slot is UNSEEN and elsewhere and (shape := SHAPE.match(begin)) is not None:
                        address, number, _ = shape.groups()
                        if address not in spelled:
                            slot = elsewhere.get(number, UNSEEN)
                    if slot is UNSEEN or b"caused by" in body:
                        self._xid(raw, body, begin)
                        continue
                    if slot is None:
                        unread += 1
                        continue
                elif slot is None:
                    for word in by_start.get(body[:4], ANYWHERE):
                        if word in body:
                            break
                    else:
                        word = _ANY
                        if b"libnccl" not in body and b"\\x0aNVRM" not in body:
                            self.dropped += head.count(b",") < 3
                            continue
                    if word in spent:
                        unread += 1
                    elif not self._read(raw, body, (_ANY, word), known=True):  # there are no more kinds than marks
                        spent.add(word)
                    continue
                if slot.seen is None:
                    continue
                before = body
            assert slot is not None  # noqa: S101 (it is that of the line before)
            if not slot.counted:
                waiting.append(slot)
            slot.counted.append(raw)
        self._unread += unread

    def _xid(self, raw: bytes, body: bytes, begin: bytes) -> None:
        """Read or count an Xid line that is not known by how it begins."""
        shape = SHAPE.match(body)
        if shape is None:
            self._read(raw, body, (XID, _ANY), known=True)
            return
        address, number, pid = shape.groups()
        place = self._places.of(address)
        group = (place, kind_of(number, place))
        if b"caused by" in body:
            self._read(raw, body, (place, b"caused by"), known=self._places.is_known(place))
            return
        latest = self._latest.get(group, UNSEEN)
        if latest is not UNSEEN:
            if latest is not None and (not self._bucket or number not in BY_OWNER):
                self._shorten(begin, place, number, latest)
                self._tally.count(latest, raw)
                return
            if not self._bucket:
                self._shorten(begin, place, number, None)
        key: _Key = body if number in READ_WHOLE else (*group, pid or b"") if number in BY_OWNER else group
        self._read(raw, key, group, known=self._places.is_known(place))
        if number in READ_WHOLE and number not in BY_OWNER:
            self._latest[group] = None

    def _shorten(self, begin: bytes, place: bytes, number: bytes, slot: Slot | None) -> None:
        """Have further lines that begin so counted on a slot, or not read, without another look at them."""
        if place is ELSEWHERE:
            if len(self._elsewhere) < _MAX_SHORT:
                self._elsewhere[number] = slot
        elif begin and len(self._short) < _MAX_SHORT:
            self._short[begin] = slot

    def _read(self, raw: bytes, key: _Key, group: _Group, *, known: bool) -> bool:
        """Read a line unless an equal one was read in this window; False where a flood has used the share up."""
        slot = self._slots.get(key)
        if slot is not None:
            self._tally.count(slot, raw)
            return True
        if group not in self._latest and (known or self._firsts < _FIRSTS):
            self._firsts += not known
        elif self._bucket:
            self._bucket -= 1
        else:
            self._unread += 1
            return False
        record = parse_record(raw)
        if record is None:
            self.dropped += 1
            return True
        if self._bucket:  # what is read one by one keeps its order
            self._seen += self._tally.tell()
        at = self._at(record.usec)
        if "\n" in record.text and not record.text.startswith("NVRM: Xid"):
            self._latest.setdefault(group, None)
            self._seen.extend(self.reader.read(record.text, at))
            return True
        reading = self.reader.read_line(record.text, at)
        if reading.seen is not None:
            self._seen.append(reading.seen)
        by_rate = reading.seen is not None and reading.seen.fault in RATES and self._bucket
        if not reading.settled or len(raw) > _MAX_KEPT or by_rate:
            self._latest.setdefault(group, None)
            return True
        slot = self._slots[key] = Slot(reading.seen, [])
        self._latest[group] = slot if reading.seen is not None else None
        return True

    def _tell(self, newest: bytes) -> None:
        """Tell what was counted, and how much was not read."""
        self._seen += self._tally.tell()
        if self._unread:
            text = f"{self._unread} of many different lines were not read one by one"
            note = self.reader.note("KernelLogFlood", text, self._at(_usec(newest)))
            self._seen.append(msgspec.structs.replace(note, times=self._unread))
            self._unread = 0

    def _at(self, usec: int) -> float:
        return self.reader.boot_time + usec / 1e6


def _usec(raw: bytes) -> int:
    return header_number(raw, 2)
