"""Reads a kernel log in whatever form it was saved: what a person hands over, and what the journal gives the agent.

``/dev/kmsg`` records, dmesg and journalctl in all their print forms and in JSON, syslog files, mixed. Each line is told
by itself, but for the next lines of a record that has several: they are of whoever wrote the first one. Boots are told
apart by the journal's boot id, the kernel's first line, a clock that begins anew.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from fleetwell.health.dmesg_json import DmesgJson, parse_compact
from fleetwell.health.journal_blocks import entries
from fleetwell.health.journal_line import parse_journal
from fleetwell.health.log_line import LogLine, rest_of_record, strip_prefix
from fleetwell.health.log_wrapping import in_json

_BOOT_LINE: Final = re.compile(r"(?:Linux version \d{1,3}\.\d{1,4}|Booting Linux on physical CPU 0x)")
_BOOT_MARK: Final = re.compile(r"-- (?:Boot (?P<id>[0-9a-f]{8,32})|Reboot) --\s*\Z")
_CLOCK_BACK: Final = 60.0
"""Seconds by which the kernel's clock falls where another boot begins; lines of two processors swap by far less."""
_SAME_BOOT: Final = 5.0
"""Seconds within which several lines may each be a boot's first."""
_MAX_BOOTS: Final = 4096
_INDENT: Final = " " * 8


class Form(enum.StrEnum):
    """In which form a log was saved."""

    AUTO = "auto"
    """Each line is told by itself."""
    KMSG = "kmsg"
    JOURNAL = "journal"
    TEXT = "text"
    """dmesg, journalctl and syslog as printed."""


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a log, without its prefixes."""

    text: str
    from_kernel: bool
    """Only the kernel's own lines say anything: what user space wrote into the log is marked here, and not read."""
    boot: int
    """Which boot of the log it is of, counted from 0; those before the last one are of earlier boots."""
    at: float | None = None
    """Seconds since the epoch, where the line tells. Never to be compared with another machine's."""
    uptime: float | None = None
    """Seconds since the boot by the kernel's clock, where the line tells."""
    sequence: int | None = None
    marked: bool = False
    """Whether something stood before the text that stands before a log's lines only."""


class _Boots:
    """Counts the boots of a log."""

    def __init__(self) -> None:
        self.current = 0
        self._ids: dict[str, int] = {}
        self._latest: float | None = None
        self._sequence: int | None = None
        self._fresh = True
        """Nothing but the first line of the present boot has been seen of it."""

    def see(self, line: LogLine, boot_id: str) -> int:
        if boot_id:
            return self._by_id(boot_id)
        rewound = line.uptime is not None and self._latest is not None and line.uptime < self._latest - _CLOCK_BACK
        renumbered = line.sequence is not None and self._sequence is not None and line.sequence < self._sequence
        first = line.from_kernel and _BOOT_LINE.match(line.text) is not None
        begun = self._latest is not None and self._latest > _SAME_BOOT
        if rewound or renumbered or (first and not self._fresh and (begun or line.uptime is None)):
            self.next()
        self._latest = line.uptime if line.uptime is not None else self._latest
        self._sequence = line.sequence if line.sequence is not None else self._sequence
        self._fresh = self._fresh and first
        return self.current

    def next(self) -> None:
        self.current += 1
        self._latest = self._sequence = None
        self._fresh = True

    def mark(self, boot_id: str) -> None:
        """Take a line that journalctl prints between boots."""
        if boot_id not in self._ids:
            if not self._fresh:
                self.next()
            if boot_id and len(self._ids) < _MAX_BOOTS:
                self._ids[boot_id] = self.current

    def _by_id(self, boot_id: str) -> int:
        known = self._ids.get(boot_id)
        if known is None:
            if self._ids:  # the first one is of the boot that is being read
                self.next()
            if len(self._ids) < _MAX_BOOTS:
                self._ids[boot_id] = self.current
            self._fresh = False
            return self.current
        return known


def records(  # noqa: C901, PLR0912 (one branch for each form of line; calls would cost more than they tell)
    lines: Iterable[bytes | str], form: Form | str = Form.AUTO, *, now: float | None = None
) -> Iterator[LogRecord]:
    """Read lines one by one, whoever wrote them; what has no text is left out.

    :param now: seconds since the epoch of when the log was saved, to find the year of times that have none.
    """
    form = Form(form)
    journal, text, kmsg = form in {Form.AUTO, Form.JOURNAL}, form is not Form.KMSG, form is Form.KMSG
    boots = _Boots()
    document = DmesgJson()
    properties = False
    told = LogLine("", from_kernel=True)
    for raw in entries(lines) if form is Form.AUTO else lines:
        line = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        line = line.rstrip("\r\n")
        if not line:
            continue
        if journal and line.startswith("{"):
            entry = parse_journal(line)
            if entry is not None:
                told = LogLine(entry.text, entry.from_kernel, entry.at, entry.uptime, marked=True)
                yield _record(told, boots.see(told, entry.boot_id))
                continue
            if line.startswith('{"'):
                if form is Form.JOURNAL:
                    continue
                inner = in_json(line) if (compact := parse_compact(line, now)) is None else ""
                for told in [strip_prefix(inner, now)] if inner else compact or ():
                    yield _record(told, boots.see(told, ""))
                continue  # JSON of something else; the kernel's own lines may begin with "{1}[Hardware Error]"
        if form is Form.JOURNAL:
            continue
        if document.inside:
            belongs, ended = document.take(line, now)
            if ended is not None:
                told = ended
                yield _record(told, boots.see(told, ""))
            if belongs:
                continue
        elif text and (line in {"{", "}"} or ('"dmesg"' in line and document.begins(line))):
            continue
        if text and line.startswith("-- ") and (mark := _BOOT_MARK.match(line)) is not None:
            boots.mark(mark["id"] or "")
            continue
        if properties and line.startswith(" ") and "=" in line:
            continue
        if line.startswith(_INDENT) and (rest := rest_of_record(line)):
            yield _record(msgspec.structs.replace(told, text=rest, sequence=None), boots.current)
            continue
        told = strip_prefix(line, now)
        properties = told.sequence is not None  # lines of "KEY=value" may follow a record
        if kmsg and told.sequence is None:
            continue
        yield _record(told, boots.see(told, ""))


def _record(line: LogLine, boot: int) -> LogRecord:
    return LogRecord(
        text=line.text,
        from_kernel=line.from_kernel,
        boot=boot,
        at=line.at,
        uptime=line.uptime,
        sequence=line.sequence,
        marked=line.marked,
    )
