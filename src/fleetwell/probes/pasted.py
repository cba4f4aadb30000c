"""What stands around a tool's output where people copied it from a terminal, and says nothing of the machine."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\([A-Z0-9]")
_AROUND = (
    re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d(?: [A-Z]{2,5})? \d{4}"),  # a date
    re.compile(r"(?:\([\w.-]{1,40}\) )?\[?[\w.-]{1,64}@[\w.-]{1,64}[^|]{0,80}[$#%>]"),  # a prompt and nothing behind it
    re.compile(r"Defaulted container .*"),  # kubectl
    re.compile(r"Executing in Pod \S+ on Host \S+"),
    re.compile(r"Every \d+(?:\.\d+)?s: .*"),  # watch
    re.compile(r"```\w*"),
)
LINE_LIMIT = 1000
"""Characters of a line that are looked at."""


def plain(text: str) -> str:
    """Take a terminal's colours out."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def around(line: str, tool: str) -> bool:
    """Tell whether a line means nothing: an empty one, a date, a prompt with or without the tool's name behind it."""
    said = line[:LINE_LIMIT].strip()
    if not said or any(pattern.fullmatch(said) for pattern in _AROUND):
        return True
    called = rf"(?:\S+@\S+|\[\S+ ?\S*\]|bash-[\d.]+)?[^|]{{0,80}}[$#>] ?(?:sudo )?{tool}\b.*|\+ (?:\S+/)?{tool}\b.*"
    return re.fullmatch(called, said) is not None
