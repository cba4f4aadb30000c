"""Takes the prefixes off printed kernel lines: dmesg in its print forms, syslog and rsyslog files.

For logs that a person hands over; the agent reads records, whose facility is certain.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from fleetwell.health.kmsg_record import parse_record

_FACILITY: Final = re.compile(r"(kern|user|mail|daemon|auth|syslog|lpr|news|local[0-7])\s{0,3}:([a-z]{3,7})\s{0,4}:\s")
_ISO: Final = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})"
_BSD: Final = r"[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}"
_BRACKET: Final = r"\[\s{0,12}(?:\d{1,12}\.\d{1,9}|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4})\]"
_SYSLOG: Final = re.compile(rf"(?:{_ISO}|{_BSD}) (\S{{1,255}}) ([^\s:\[]{{1,64}})(\[\d{{1,10}}\])?: ")
_STAMPS: Final = re.compile(rf"(?:{_ISO}|{_BRACKET})\s")
_MAX_LINE: Final = 4096


class LogLine(msgspec.Struct, frozen=True):
    """A printed line without its prefixes."""

    text: str
    from_kernel: bool
    """False when the line itself says that something else than the kernel wrote it."""


def strip_prefix(line: str) -> LogLine:
    """Take off whatever stands before the kernel's own text in a printed line."""
    line = line[:_MAX_LINE].rstrip("\r\n")
    record = parse_record(line.encode("utf-8", "replace"))
    if record is not None:
        return LogLine(record.text, record.from_kernel)
    from_kernel = True
    if (facility := _FACILITY.match(line)) is not None:
        from_kernel = facility[1] == "kern"
        line = line[facility.end() :]
    if (syslog := _SYSLOG.match(line)) is not None:
        from_kernel = from_kernel and syslog[2] == "kernel" and syslog[3] is None
        line = line[syslog.end() :]
    if (stamp := _STAMPS.match(line)) is not None:
        line = line[stamp.end() :]
    return LogLine(line, from_kernel)
