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
_LABEL = re.compile(r"((?!error|warning)[\w.-]{1,64}:|>)(?= |$)", re.IGNORECASE | re.MULTILINE)
"""What a launcher writes before every line (the host, the task), or a mail before what it quotes."""
_LABELLED = 3
"""From so many lines on, one that stands before each is a label."""
LINE_LIMIT = 1000
"""Characters of a line that are looked at."""


def plain(text: str) -> str:
    """Take a terminal's colours out, and a label that stands before every line. Those of several hosts are left."""
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    first = _LABEL.match(text)
    if first is None:
        return text
    label = first[1]
    lines = text.split("\n")
    said = [line for line in lines if line.strip()]
    labelled = all(line == label or line.startswith(f"{label} ") for line in said)
    if len(said) < _LABELLED or not labelled:
        return text
    return "\n".join(line.removeprefix(label).removeprefix(" ") for line in lines)


def around(line: str, tool: str) -> bool:
    """Tell whether a line means nothing: an empty one, a date, a prompt with or without the tool's name behind it."""
    said = line[:LINE_LIMIT].strip()
    if not said or any(pattern.fullmatch(said) for pattern in _AROUND):
        return True
    called = rf"(?:\S+@\S+|\[\S+ ?\S*\]|bash-[\d.]+)?[^|]{{0,80}}[$#>] ?(?:sudo )?{tool}\b.*|\+ (?:\S+/)?{tool}\b.*"
    return re.fullmatch(called, said) is not None
