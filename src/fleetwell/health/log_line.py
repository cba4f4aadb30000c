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
from fleetwell.health.log_stamp import BSD, ISO, epoch_of
from fleetwell.health.log_wrapping import shipped, unwrap

_PRIORITY: Final = re.compile(r"<(\d{1,3})>(?:1 (?=\d{4}-))?")
_FACILITY: Final = re.compile(
    r"(kern|user|mail|daemon|authpriv|auth|syslog|lpr|news|uucp|cron|ftp|local[0-7])\s{0,7}:([a-z]{3,7})\s{0,4}:\s"
)
_ISO_SYSLOG: Final = ISO.replace("[.,]", "[.]")  # dmesg alone prints a comma, and names no host
_FULL: Final = r"\S{1,9} \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,9})? (?:[A-Z]{3,5}|[+-]\d{2,4})"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,16}[mK]")
_UNIX: Final = r"\d{9,11}\.\d{6}"
_UPTIME: Final = r"\[\s{0,12}\d{1,12}\.\d{1,9}(?:\s{1,4}<\s{0,12}\d{1,12}\.\d{1,9}[ *]?>)?\]"
_DATED: Final = re.compile(rf"(?:{_ISO_SYSLOG}|{BSD}|{_FULL}|{_UNIX})(?= )")
_WRITER: Final = re.compile(
    r" [^\s:\[\]]{1,255} (?:[A-Z]{3,9} (?=kernel: ))?"  # some print the level before the tag
    r"(?P<tag>[^\s:\[]{1,64})(?P<pid>\[\d{1,10}\])?"
    r"(?:: | - (?:-|\w{1,32}) (?:-|(?:\[[^\]]{0,512}\]){1,4}) ?)|"
    r" {1,2}(?P<alone>kernel|[^\s:\[]{1,64}(?=\[\d))(?P<number>\[\d{1,10}\])?: |"  # journalctl --no-hostname
    r" (?P<nobody>)(?=NVRM: |nvidia-nvswitch\d{1,3}: SXid)"  # somebody shortened it by hand
)
"""Host and program behind a time of day."""
_MONOTONIC: Final = re.compile(
    rf"(?P<stamp>{_UPTIME}|\[{BSD}\]) (?:[^\s:]{{1,255}} )?(?P<tag>kernel)(?P<pid>\[\d{{1,10}}\])?: "
)
"""journalctl -o short-monotonic. In plain dmesg a driver and a device stand where it has host and tag."""
_TALOS: Final = re.compile(
    r"(?:[\w.:-]{1,64}: )?(?P<facility>kern|user|daemon|syslog|local\d|authpriv|auth):\s{1,8}[a-z]{3,7}: "
    rf"\[(?P<iso>{ISO})\]: "
)
_VMKERNEL: Final = re.compile(
    rf"(?P<iso>{ISO}) (?:[A-Z][a-z]\(\d{{1,3}}\) vmkernel: )?cpu\d{{1,5}}:\d{{1,12}}(?: opID=\w{{1,32}})?\)"
    r"(?:WARNING: |ALERT: )?"
)
"""ESXi: its kernel is the one that the driver runs in."""
_VMKERNEL_BEGIN: Final = 64
_TAG: Final = re.compile(r" ?kernel: ?(?=\S)")
"""Without any time: somebody cut it off, or syslogd called it out to all terminals."""
_STAMP: Final = re.compile(
    rf"(?P<iso>{ISO})\s(?:(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug) (?=\[))?"
)
_BRACKET: Final = re.compile(
    r"\[(?:\s{0,12}(?P<uptime>\d{1,12}\.\d{1,9})(?:\s{1,4}<\s{0,12}\d{1,12}\.\d{1,9}[ *]?>)?|"
    rf"(?P<ctime>{BSD})|"
    r"(?:[^\W\d_]{3,9}\.? ?[ \d]\d \d{2}:\d{2}|\s{0,4}\+\d{1,6}\.\d{6}))\](?:\s|\Z|(?=\[\s{0,8}[TC]\d))"
)
_CALLER: Final = re.compile(r"\[\s{0,8}[TC]\d{1,8}\](?:\s|\Z)")
_DMESG: Final = re.compile(r"\[\s{0,12}(\d{1,12}\.\d{1,9})\](?:\s?\[\s{0,8}[TC]\d{1,8}\])?\s")
_DMESG_CTIME: Final = re.compile(
    r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4})\](?:\s?\[\s{0,8}[TC]\d{1,8}\])?\s"
)
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
    marked: bool = False
    """Whether something stood before the text that stands before a log's lines only, if only without a time."""


def strip_prefix(line: str, now: float | None = None) -> LogLine:
    """Take off whatever stands before the kernel's own text in a printed line; ``now`` as for ``epoch_of``."""
    line = line[:_MAX_LINE].rstrip("\r\n")
    if "\x1b[" in line:
        line = _COLOUR.sub("", line)
    if not line.isascii():
        line = line.replace("\N{NO-BREAK SPACE}", " ")  # web pages have it where the log had a space
    if (known := _commonest(line, now)) is not None:
        return known
    if line[:1].isdigit() and (record := parse_record(line.encode("utf-8", "replace"))) is not None:
        uptime = record.usec / 1e6
        return LogLine(record.text, record.from_kernel, uptime=uptime, sequence=record.sequence, marked=True)
    told = _printed(line, now)
    if told.marked or line.startswith("NVRM: "):
        return told
    inner = unwrap(line)
    return msgspec.structs.replace(strip_prefix(inner, now), marked=True) if inner else told


def _printed(line: str, now: float | None) -> LogLine:
    """Read one of the less common forms; what has none of them comes back as it is."""
    if "]: " in line and (talos := _TALOS.match(line)) is not None:
        return LogLine(line[talos.end() :], talos["facility"] == "kern", _epoch(talos["iso"], now), marked=True)
    if "cpu" in line[:_VMKERNEL_BEGIN] and (esxi := _VMKERNEL.match(line)) is not None:
        return LogLine(line[esxi.end() :], from_kernel=True, at=_epoch(esxi["iso"], now), marked=True)
    rest, of_kernel = _without_level(line)
    told = _written(rest, now) or _dated(rest, now) or _undated(rest, now)
    return (
        told if rest is line else msgspec.structs.replace(told, from_kernel=told.from_kernel and of_kernel, marked=True)
    )


def _without_level(line: str) -> tuple[str, bool]:
    """Take off priority and facility; and say whether they leave it possible that the kernel wrote the line."""
    of_kernel = True
    if line[:1] == "<" and (priority := _PRIORITY.match(line)) is not None:
        of_kernel = int(priority[1]) < KERNEL_PRIORITIES
        line = line[priority.end() :]
    if line[:1].isalpha() and (facility := _FACILITY.match(line)) is not None:
        return line[facility.end() :], of_kernel and facility[1] == "kern"
    return line, of_kernel


def _written(line: str, now: float | None) -> LogLine | None:
    """Read a line that says behind its time who wrote it."""
    if line[:1] == "[":
        since = _MONOTONIC.match(line) if " kernel" in line[:_HOST_AND_TAG] else None
        if since is None:
            return None
        writer, stamp, from_kernel = since, since["stamp"], since["pid"] is None
    else:
        dated = _DATED.match(line)
        behind = _WRITER.match(line, dated.end()) if dated is not None else None
        if dated is None or behind is None:
            return None
        named = "kernel" in {behind["tag"], behind["alone"]} and (behind["pid"] or behind["number"]) is None
        writer, stamp, from_kernel = behind, dated[0], behind["nobody"] is not None or named
    at, uptime = _time(stamp, now)
    return _bracketed(LogLine(line[writer.end() :], from_kernel, at, uptime, marked=True), now)


def _dated(line: str, now: float | None) -> LogLine | None:
    """Read a line that has a time of day in front and nobody's name."""
    stamp = _STAMP.match(line) if line[:1].isdigit() else None
    if stamp is None:
        return None
    at, rest = _epoch(stamp["iso"].replace(",", "."), now), line[stamp.end() :]
    if (inner := shipped(rest)) is not None:
        told = strip_prefix(inner, now)
        return msgspec.structs.replace(told, at=at if told.at is None else told.at, marked=True)
    if "," in stamp["iso"]:
        return _bracketed(LogLine(rest, from_kernel=True, at=at, marked=True), now)
    # Any program's log may begin so. A container's certainly is not the kernel's.
    return LogLine(rest, not rest.startswith(("stdout ", "stderr ")), at)


def _undated(line: str, now: float | None) -> LogLine:
    tag = _TAG.match(line) if line[:1] in " k" else None
    told = LogLine(line, from_kernel=True) if tag is None else LogLine(line[tag.end() :], from_kernel=True, marked=True)
    return _bracketed(told, now)


def _bracketed(told: LogLine, now: float | None) -> LogLine:
    """Take off the kernel's own time and caller, where they stand before the text."""
    line = told.text
    bracket = _BRACKET.match(line) if line[:1] == "[" else None
    if bracket is None:
        return told
    uptime = float(bracket["uptime"]) if bracket["uptime"] is not None else told.uptime
    at = _epoch(bracket["ctime"], now) if bracket["ctime"] is not None else told.at
    line = line[bracket.end() :]
    if line[:1] == "[" and (caller := _CALLER.match(line)) is not None:
        line = line[caller.end() :]
    return LogLine(line, told.from_kernel, at, uptime, marked=True)


def rest_of_record(line: str) -> str:
    """Give the text of a record's next line, which dmesg and journalctl indent; empty where it is no such line."""
    match = _INDENTED.match(line, 0, _MAX_LINE)
    return line[match.end() : _MAX_LINE].rstrip("\r\n") if match is not None else ""


def _commonest(line: str, now: float | None) -> LogLine | None:
    if line.startswith("["):
        dmesg = _DMESG.match(line) or _DMESG_CTIME.match(line)
        if dmesg is None or " kernel" in line[: dmesg.end() + _HOST_AND_TAG]:  # journalctl -o short-monotonic
            return None
        if dmesg.re is _DMESG_CTIME:
            return LogLine(line[dmesg.end() :], True, _epoch(dmesg[1], now), None, None, True)  # by place: floods
        return LogLine(line[dmesg.end() :], True, None, float(dmesg[1]), None, True)  # by place: floods
    if (syslog := _FROM_KERNEL.match(line)) is None:
        return None
    second, fraction, zone, bsd, uptime = syslog.groups()
    at = _epoch(bsd or second + (zone or ""), now)
    if at is not None and fraction:
        at += float(f"0.{fraction[:6]}")
    return LogLine(line[syslog.end() :], True, at, float(uptime) if uptime else None, None, True)


_epoch: Final = functools.lru_cache(maxsize=64)(epoch_of)


def _time(stamp: str, now: float | None) -> tuple[float | None, float | None]:
    if stamp.startswith("["):
        inside = stamp[1:-1]
        dated = ":" in inside
        return (_epoch(inside, now), None) if dated else (None, float(inside.partition("<")[0]))
    if stamp.replace(".", "").isdigit():
        return float(stamp), None
    if "-" in stamp and not stamp[0].isdigit():
        stamp = stamp.rpartition(" ")[0]  # "Fri 2025-01-24 10:34:54 CET": zones are not unique, the date is enough
    return _epoch(stamp, now), None
