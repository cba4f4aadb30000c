"""Reads ``dmesg --json``: one document whose records take several lines each, or one line each after ``jq -c``.

The document is never read as a whole: a log is read line by line, and a text in it cannot end its line.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from fleetwell.health.log_line import KERNEL_PRIORITIES, LogLine
from fleetwell.health.log_stamp import epoch_of

_OPEN: Final = re.compile(r'\s{0,32}"dmesg"\s?:\s?\[\s*\Z')
_EDGE: Final = re.compile(r"\s{0,32}(?:\{|\},?|\},\{|\]|\]\})\s*\Z")
_FIELD: Final = re.compile(r'\s{0,32}"(pri|fac|time|caller|msg)"\s?:\s{0,16}(.{1,16384}?),?\s*\Z')
_MAX_TEXT: Final = 4096
_KEYS: Final = frozenset({"pri", "fac", "time", "caller", "msg"})


class DmesgJson:
    """Goes along the lines of a document."""

    def __init__(self) -> None:
        self.inside = False
        self._fields: dict[str, Any] = {}

    def begins(self, line: str) -> bool:
        """Say whether the records begin behind this line."""
        self.inside = self.inside or _OPEN.match(line) is not None
        return self.inside

    def take(self, line: str, now: float | None) -> tuple[bool, LogLine | None]:
        """Take the next line of a document: whether it belongs to it, and the record that it ends."""
        field = _FIELD.match(line)
        if field is not None:
            self._fields[field[1]] = _value(field[2])
            return True, None
        if _EDGE.match(line) is None:
            self.inside = False
            self._fields.clear()
            return False, None
        ended = _line(self._fields, now) if "}" in line else None
        self._fields.clear()
        self.inside = not line.lstrip().startswith("]")
        return True, ended


def parse_compact(line: str, now: float | None) -> list[LogLine] | None:
    """Read a line that is one record or the whole document; None when it is neither."""
    try:
        entry = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    entries = entry.get("dmesg", [entry]) if isinstance(entry, dict) else None
    if not isinstance(entries, list) or not all(isinstance(one, dict) and one.keys() <= _KEYS for one in entries):
        return None
    lines = [_line(one, now) for one in entries]
    return None if None in lines else [one for one in lines if one is not None]


def _line(fields: dict[str, Any], now: float | None) -> LogLine | None:
    text, priority, time = fields.get("msg"), fields.get("pri"), fields.get("time")
    if not isinstance(text, str):
        return None
    facility = fields.get("fac", "kern" if type(priority) is int and 0 <= priority < KERNEL_PRIORITIES else "")
    uptime = float(time) if isinstance(time, int | float) and 0 <= time < 1e12 else None
    at = epoch_of(time.replace(",", "."), now) if isinstance(time, str) else None
    return LogLine(text[:_MAX_TEXT], facility == "kern", at, uptime, marked=True)


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
