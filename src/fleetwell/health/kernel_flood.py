"""Reads raw records of ``/dev/kmsg`` at a cost that a flood cannot raise.

800,000 lines at once must be a few findings and three seconds (DESIGN §5, §13). So a line without a mark is passed over
by its bytes, a line that says what another one of the same window said is counted and not read, and of lines that all
differ only the first of each kind and a share of the others are read. A burst, however wild, is read whole: the share
is a bucket that only a flood empties. What was not read is said (``KernelLogFlood``).

What may be counted without reading: a settled line that is equal to the last byte, and an Xid line of the same address
and number where nothing else in the line decides. Order in time is kept to seconds, far below the span of a burst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from fleetwell.health.device_names import MAX_UNKNOWN
from fleetwell.health.evidence import evidence
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.kmsg_record import has_form, header_number, message_of, parse_record
from fleetwell.health.line_marks import ANYWHERE, BY_START, XID
from fleetwell.health.line_rates import RATES
from fleetwell.health.vocabulary import Observation
from fleetwell.health.xid_shape import BY_OWNER, KINDS, NUMBER_BEFORE, READ_WHOLE, SHAPE, UNKNOWN_NUMBER

WINDOW: Final = 4096
"""Records over which lines are counted together."""
_BURST: Final = 1024
"""Lines beyond the first of their kind that are read one by one, before only a share of them is."""
_SHARE: Final = 32
"""By how many the bucket fills again in each window, and by each batch that is no flood."""
_FEW: Final = 64
"""Records of a batch below which it is no flood: the reader has caught up."""
_FIRSTS: Final = 64
"""Kinds of lines of which the first is read in each window, not counting those of GPUs that are known."""
_TELL_EVERY: Final = 2_000_000
"""Microseconds after which a line that goes on is told again: bursts are joined by time."""
_TELL_MOST: Final = 16
_LOOK_EVERY: Final = 7
"""Bits of the count at which the time is looked at."""
_FROM_KERNEL: Final = frozenset(b"%d," % level for level in range(8))
"""Priorities 0 to 7 are of facility 0."""
_MAX_KEPT: Final = 1024
"""Bytes of a record that is kept to know it again: longer ones are read each time, or not at all."""
_ANY: Final = b"*"

_Group = tuple[bytes, bytes]
_Key = bytes | tuple[bytes, ...]


class _Slot(msgspec.Struct):
    """A line of this window that needs no second reading."""

    seen: Observation | None
    told: int
    """When it was told last, in microseconds."""
    raw: bytes
    """The latest record that was counted on it."""
    tellings: int = 1
    times: int = 0
    """How often it came since it was told."""


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
        self._slots: dict[_Key, _Slot] = {}
        self._latest: dict[_Group, _Slot | None] = {}
        """What further lines of a kind are counted on; None where each says something of its own."""
        self._rated: list[_Key] = []
        """Slots of what is a fault by its rate only: they hold for as long as the flood does."""
        self._short: dict[bytes, _Slot | None] = {}
        """The same by how an Xid line begins, for what is not read any more in this window."""
        self._addresses: dict[bytes, bytes] = {}
        self._known: frozenset[bytes] = frozenset()
        self._version = -1
        self._left = 0
        self._bucket = burst
        self._counted: list[_Slot] = []
        self._firsts = 0
        self._unread = 0

    def read(self, raws: Sequence[bytes]) -> tuple[Observation, ...]:
        """Read records as the device gives them, the next ones in order."""
        for start in range(0, len(raws), WINDOW):
            piece = raws[start : start + WINDOW]
            if self._left <= 0 or self._version != self.reader.names.version:
                self._renew()
            self._left -= len(piece)
            if len(piece) < _FEW:
                self._bucket = min(self._burst, self._bucket + _SHARE)
                while self._rated:
                    self._slots.pop(self._rated.pop(), None)
            self._gaps(piece)
            self._piece(piece)
            self._tell(piece[-1])
        seen = tuple(self._seen)
        self._seen.clear()
        return seen

    def _renew(self) -> None:
        self._left = WINDOW
        self._slots.clear()
        self._latest.clear()
        self._short.clear()
        self._rated.clear()
        self._firsts = 0
        self._bucket = min(self._burst, self._bucket + _SHARE)
        if self._version != self.reader.names.version:
            self._version = self.reader.names.version
            self._known = self.reader.names.known()
            self._addresses.clear()

    def _gaps(self, raws: Sequence[bytes]) -> None:
        """Say what is missing. Where the first and the last number fit the count, nothing is."""
        last = self.reader.last_sequence
        oldest, newest = header_number(raws[0], 1), header_number(raws[-1], 1)
        if oldest == (0 if last is None else last + 1) and newest - oldest == len(raws) - 1:
            self.reader.last_sequence = newest
            return
        latest, more = None, 0
        for raw in raws:
            if not has_form(raw):
                continue
            for gap in self.reader.missing(header_number(raw, 1), self._at(header_number(raw, 2))):
                if latest is None:
                    self._seen.append(gap)
                else:
                    more += 1
                latest = gap
        if latest is not None and more:
            self._seen.append(msgspec.structs.replace(latest, times=more))

    def _piece(self, raws: Sequence[bytes]) -> None:
        before: bytes | None = None
        slot: _Slot | None = None
        for raw in raws:
            if raw[:2] not in _FROM_KERNEL:
                if not has_form(raw):
                    self.dropped += 1
                continue  # User space wrote it, or nobody.
            head, _, body = raw.partition(b";")
            if body == before:
                if slot is not None:
                    self._count(slot, raw)
                continue
            slot = before = None
            if body.startswith(XID):
                slot = self._xid(raw, body)
                before = body if slot is not None else None
                continue
            for word in BY_START.get(body[:4], ANYWHERE):
                if word in body:
                    break
            else:
                word = _ANY
                if b"libnccl" not in body and b"\\x0aNVRM" not in body:
                    self.dropped += head.count(b",") < 3
                    continue
            slot = self._read(raw, body, (_ANY, word), known=True)  # there are no more kinds than marks
            before = body if slot is not None else None

    def _xid(self, raw: bytes, body: bytes) -> _Slot | None:
        """Read or count an Xid line; give the slot on which equal ones may be counted."""
        begin = body[: body.find(b",", NUMBER_BEFORE)]
        if begin in self._short and b"caused by" not in body:
            slot = self._short[begin] or self._slots.get(body)
            if slot is None:
                self._unread += 1
            else:
                self._count(slot, raw)
            return slot
        shape = SHAPE.match(body)
        if shape is None:
            return self._read(raw, body, (XID, _ANY), known=True)
        address, number, pid = shape.groups()
        place = self._addresses.get(address) or self._address(address)
        group = (
            place,
            KINDS.get(number, UNKNOWN_NUMBER) if place is _ANY else number if number in KINDS else UNKNOWN_NUMBER,
        )
        if b"caused by" in body:
            return self._read(raw, body, (group[0], b"caused by"), known=group[0] in self._known)
        if group in self._latest:
            latest = self._latest[group]
            if not self._bucket or (latest is not None and number not in BY_OWNER):
                self._short[begin] = latest
            if latest is not None and begin in self._short:
                self._count(latest, raw)
                return latest
        key: _Key = body if number in READ_WHOLE else (*group, pid or b"") if number in BY_OWNER else group
        slot = self._read(raw, key, group, known=group[0] in self._known)
        if number in READ_WHOLE and number not in BY_OWNER:
            self._latest[group] = None
        return slot

    def _address(self, address: bytes) -> bytes:
        """Give the one spelling of an address, or one name for all that are more than a machine can have."""
        plain = address.lower().removesuffix(b".0")
        if plain not in self._known and len(self._addresses) >= MAX_UNKNOWN + 2 * len(self._known):
            return _ANY
        self._addresses[address] = plain
        return plain

    def _read(self, raw: bytes, key: _Key, group: _Group, *, known: bool) -> _Slot | None:
        """Read a line unless an equal one was read in this window, or a flood has used the share up."""
        slot = self._slots.get(key)
        if slot is not None:
            self._count(slot, raw)
            return slot
        if group not in self._latest and (known or self._firsts < _FIRSTS):
            self._firsts += not known
        elif self._bucket:
            self._bucket -= 1
        else:
            self._unread += 1
            return None
        record = parse_record(raw)
        if record is None:
            self.dropped += 1
            return None
        self._tell_counted()  # what is read one by one keeps its order
        at = self._at(record.usec)
        if "\n" in record.text and not record.text.startswith("NVRM: Xid"):
            self._latest.setdefault(group, None)
            self._seen.extend(self.reader.read(record.text, at))
            return None
        reading = self.reader.read_line(record.text, at)
        if reading.seen is not None:
            self._seen.append(reading.seen)
        rated = reading.seen is not None and reading.seen.fault in RATES
        if not reading.settled or len(raw) > _MAX_KEPT or (rated and self._bucket):
            self._latest.setdefault(group, None)
            return None
        if rated:
            self._rated.append(key)
        slot = self._slots[key] = _Slot(reading.seen, record.usec, raw)
        self._latest[group] = slot if reading.seen is not None else None
        return slot if reading.seen is not None else None

    def _count(self, slot: _Slot, raw: bytes) -> None:
        if slot.seen is None:
            return
        if not slot.times:
            self._counted.append(slot)
        slot.times += 1
        slot.raw = raw
        look = not slot.times & _LOOK_EVERY and slot.tellings < _TELL_MOST
        if look and abs(header_number(raw, 2) - slot.told) >= _TELL_EVERY:
            self._seen.append(self._told(slot))

    def _tell(self, newest: bytes) -> None:
        """Tell what was counted, and how much was not read."""
        self._tell_counted()
        if self._unread:
            text = f"{self._unread} of many different lines were not read one by one"
            self._seen.append(
                msgspec.structs.replace(
                    self.reader.note("KernelLogFlood", text, self._at(header_number(newest, 2))), times=self._unread
                )
            )
            self._unread = 0

    def _tell_counted(self) -> None:
        """Tell what was counted, in the order of its latest sight."""
        for slot in sorted(self._counted, key=lambda one: header_number(one.raw, 1)):
            if slot.times:
                self._seen.append(self._told(slot))
        self._counted.clear()

    def _told(self, slot: _Slot) -> Observation:
        assert slot.seen is not None  # noqa: S101 (only slots with an observation are counted)
        usec = header_number(slot.raw, 2)
        told = msgspec.structs.replace(
            slot.seen,
            at=self._at(usec),
            times=slot.times,
            evidence=evidence(message_of(slot.raw.partition(b";")[2])),
        )
        slot.times = 0
        slot.told = usec
        slot.tellings += 1
        return told

    def _at(self, usec: int) -> float:
        return self.reader.boot_time + usec / 1e6
