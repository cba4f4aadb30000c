"""Reads records of ``/dev/kmsg``: priority, sequence number, time, flags; text; indented properties.

The kernel forces facility 1 or higher on what user space writes there, so the facility in the priority, and nothing in
the text, tells whether the kernel itself said a thing.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

_HEADER: Final = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),([^,;]{1,8})(?:,[^;\n]{0,256})?;")
_ESCAPE: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")
_MAX_BYTES: Final = 8192
_MAX_TEXT: Final = 2048
_MAX_DIGITS: Final = 20
_FACILITY_SHIFT: Final = 3
_LEVEL_MASK: Final = 7


class KmsgRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the kernel's ring buffer."""

    level: int
    """Syslog level: 0 (emergency) to 7 (debug)."""
    facility: int
    """Syslog facility: 0 is the kernel, everything else came from user space."""
    sequence: int
    usec: int
    """Microseconds since boot, by the kernel's clock."""
    text: str
    """The message with its escapes undone: it may hold newlines and control characters."""
    properties: tuple[tuple[str, str], ...] = ()
    """``SUBSYSTEM``, ``DEVICE`` … of the continuation lines."""
    continued: bool = False
    """Whether this record is a fragment that goes on with the one before."""

    @property
    def from_kernel(self) -> bool:
        """Whether the kernel itself wrote it."""
        return self.facility == 0


def parse_record(raw: bytes) -> KmsgRecord | None:
    """Read one record as the kernel gives it by one ``read``; None when it does not have the kernel's form."""
    raw = raw[:_MAX_BYTES]
    header = _HEADER.match(raw)
    if header is None:
        return None
    body, *rest = raw[header.end() :].split(b"\n")
    priority = int(header[1])
    return KmsgRecord(
        level=priority & _LEVEL_MASK,
        facility=priority >> _FACILITY_SHIFT,
        sequence=int(header[2]),
        usec=int(header[3]),
        text=_unescape(body)[:_MAX_TEXT],
        properties=tuple(_property(line) for line in rest[:16] if line.startswith(b" ") and b"=" in line),
        continued=header[4] in {b"c", b"+"},
    )


def has_form(raw: bytes) -> bool:
    """Say whether a record has the kernel's form, without reading it."""
    return _HEADER.match(raw, 0, _MAX_BYTES) is not None


def header_number(raw: bytes, number: int) -> int:
    """Give a number of a record's header: 1 is the sequence, 2 are the microseconds; -1 where there is none."""
    fields = raw[:64].split(b",", number + 1)
    if len(fields) <= number + 1 or len(fields[number]) > _MAX_DIGITS or not fields[number].isdigit():
        return -1
    return int(fields[number])


def parse_header(raw: bytes) -> tuple[int, int] | None:
    """Give a record's sequence number and its microseconds since the boot, and read no more of it."""
    header = _HEADER.match(raw, 0, _MAX_BYTES)
    return None if header is None else (int(header[2]), int(header[3]))


def message_of(body: bytes) -> str:
    """Give the message of what follows a record's header."""
    return _unescape(body.partition(b"\n")[0][:_MAX_BYTES])[:_MAX_TEXT]


def _unescape(text: bytes) -> str:
    if b"\\" in text:
        text = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text)
    return text.decode("utf-8", "replace")


def _property(line: bytes) -> tuple[str, str]:
    key, _, value = _unescape(line.strip()).partition("=")
    return key[:64], value[:256]
