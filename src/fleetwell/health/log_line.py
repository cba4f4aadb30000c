"""Takes the prefixes off printed kernel lines: dmesg and journalctl in their print forms, syslog and rsyslog files.

For logs that a person hands over; the agent reads records, whose facility is certain. Where a line names who wrote it,
only the kernel's own count; where it names nobody (plain dmesg) the kernel is taken to have written it.
"""

from __future__ import annotations

import functools
import re
from typing import Final

import msgspec

from fleetwell.health.kmsg_record import parse_record
from fleetwell.health.log_stamp import epoch_of

_PRIORITY: Final = re.compile(r"<(\d{1,3})>(?:1 (?=\d{4}-))?")
_FACILITY: Final = re.compile(
    r"(kern|user|mail|daemon|authpriv|auth|syslog|lpr|news|uucp|cron|ftp|local[0-7])\s{0,7}:([a-z]{3,7})\s{0,4}:\s"
)
_ISO: Final = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?"
_ISO_SYSLOG: Final = _ISO.replace("[.,]", "[.]")  # dmesg alone prints a comma, and names no host
_FULL: Final = r"[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,9})? [A-Z]{3,5}"
_BSD: Final = r"[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?: \d{4})?"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,16}m")
_UNIX: Final = r"\d{9,11}\.\d{6}"
_UPTIME: Final = r"\[\s{0,12}\d{1,12}\.\d{1,9}(?:\s{1,4}<\s{0,12}\d{1,12}\.\d{1,9}>)?\]"
_SYSLOG: Final = re.compile(
    rf"(?P<stamp>{_ISO_SYSLOG}|{_FULL}|{_BSD}|{_UNIX}) [^\s:]{{1,255}} "
    r"(?P<tag>[^\s:\[]{1,64})(?P<pid>\[\d{1,10}\])?(?:: | - - -? ?)"
)
_MONOTONIC: Final = re.compile(rf"(?P<stamp>{_UPTIME}) [^\s:]{{1,255}} (?P<tag>kernel)(?P<pid>\[\d{{1,10}}\])?: ")
"""journalctl -o short-monotonic. In plain dmesg a driver and a device stand where it has host and tag."""
_STAMP: Final = re.compile(rf"(?P<iso>{_ISO})\s")
_BRACKET: Final = re.compile(
    r"\[(?:\s{0,12}(?P<uptime>\d{1,12}\.\d{1,9})(?:\s{1,4}<\s{0,12}\d{1,12}\.\d{1,9}>)?|"
    r"(?P<ctime>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4})|"
    r"(?:[A-Z][a-z]{2} ?[ \d]\d \d{2}:\d{2}|\s{0,4}\+\d{1,6}\.\d{6}))\](?:\s|\Z|(?=\[\s{0,8}[TC]\d))"
)
_CALLER: Final = re.compile(r"\[\s{0,8}[TC]\d{1,8}\](?:\s|\Z)")
_DMESG: Final = re.compile(r"\[\s{0,12}(\d{1,12}\.\d{1,9})\](?:\s?\[\s{0,8}[TC]\d{1,8}\])?\s")
_FROM_KERNEL: Final = re.compile(
    r"(?:(?P<second>\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d{2}:?\d{2})?|"
    r"(?P<bsd>[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2})) [^\s:]{1,255} kernel: "
    r"(?:\[\s{0,12}(?P<uptime>\d{1,12}\.\d{1,9})\] )?(?!\[)"
)
"""The commonest forms of dmesg and of syslog files, read at once: floods are of them."""
_INDENTED: Final = re.compile(r"\s{8,64}(?=NVRM: )")
_MAX_LINE: Final = 4096
KERNEL_PRIORITIES: Final = 8
_HOST_AND_TAG: Final = 264
"""Within so many bytes host and tag stand, where a line has them."""


class LogLine(msgspec.Struct, frozen=True):
    """A printed line without its prefixes."""

    text: str
    from_kernel: bool
    """False when the line itself says that something else than the kernel wrote it."""
    at: float | None = None
    """Seconds since the epoch, where a time of day was printed."""
    uptime: float | None = None
    """Seconds since the boot, by the kernel's clock, where they were printed."""
    sequence: int | None = None


def strip_prefix(line: str, now: float | None = None) -> LogLine:  # noqa: C901 (one branch for each prefix)
    """Take off whatever stands before the kernel's own text in a printed line; ``now`` as for ``epoch_of``."""
    line = line[:_MAX_LINE].rstrip("\r\n")
    if "\x1b[" in line:
        line = _COLOUR.sub("", line)
    if (known := _commonest(line, now)) is not None:
        return known
    if line[:1].isdigit() and (record := parse_record(line.encode("utf-8", "replace"))) is not None:
        return LogLine(record.text, record.from_kernel, uptime=record.usec / 1e6, sequence=record.sequence)
    from_kernel = True
    at: float | None = None
    uptime: float | None = None
    if (priority := _PRIORITY.match(line)) is not None:
        from_kernel = int(priority[1]) < KERNEL_PRIORITIES
        line = line[priority.end() :]
    if (facility := _FACILITY.match(line)) is not None:
        from_kernel = from_kernel and facility[1] == "kern"
        line = line[facility.end() :]
    if (syslog := _SYSLOG.match(line) or _MONOTONIC.match(line)) is not None:
        from_kernel = from_kernel and syslog["tag"] == "kernel" and syslog["pid"] is None
        at, uptime = _time(syslog["stamp"], now)
        line = line[syslog.end() :]
    elif (stamp := _STAMP.match(line)) is not None:
        at = _epoch(stamp["iso"].replace(",", "."), now)
        line = line[stamp.end() :]
    if (bracket := _BRACKET.match(line)) is not None:
        if bracket["uptime"] is not None:
            uptime = float(bracket["uptime"])
        elif bracket["ctime"] is not None:
            at = _epoch(bracket["ctime"], now)
        line = line[bracket.end() :]
        if (caller := _CALLER.match(line)) is not None:
            line = line[caller.end() :]
    return LogLine(line, from_kernel, at, uptime)


def rest_of_record(line: str) -> str:
    """Give the text of a record's next line, which dmesg and journalctl indent; empty where it is no such line."""
    match = _INDENTED.match(line, 0, _MAX_LINE)
    return line[match.end() : _MAX_LINE].rstrip("\r\n") if match is not None else ""


def _commonest(line: str, now: float | None) -> LogLine | None:
    if line.startswith("["):
        dmesg = _DMESG.match(line)
        if dmesg is None or " kernel" in line[: dmesg.end() + _HOST_AND_TAG]:  # journalctl -o short-monotonic
            return None
        return LogLine(line[dmesg.end() :], from_kernel=True, uptime=float(dmesg[1]))
    if (syslog := _FROM_KERNEL.match(line)) is None:
        return None
    second, fraction, zone, bsd, uptime = syslog.groups()
    at = _epoch(bsd or second + (zone or ""), now)
    if at is not None and fraction:
        at += float(f"0.{fraction[:6]}")
    return LogLine(line[syslog.end() :], from_kernel=True, at=at, uptime=float(uptime) if uptime else None)


_epoch: Final = functools.lru_cache(maxsize=64)(epoch_of)


def _time(stamp: str, now: float | None) -> tuple[float | None, float | None]:
    if stamp.startswith("["):
        return None, float(stamp[1:-1].partition("<")[0])
    if stamp[0].isdigit() and "-" not in stamp:
        return float(stamp), None
    if stamp[:1].isalpha() and stamp[4:8].isdigit():
        stamp = stamp[4:].rpartition(" ")[0]  # "Fri 2025-01-24 10:34:54 CET": zones are not unique, the date is enough
    return _epoch(stamp, now), None
