"""Puts the journal's forms in which an entry takes several lines into one line of JSON each.

``journalctl -o export``, ``verbose`` and ``json-pretty``, and the marks that ``json-seq`` and ``json-sse`` put before
each entry. Which form it is the first lines tell; a log of another form goes through as it is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

_LOOK: Final = 8
"""Lines at the beginning that are looked at: journalctl may print a heading."""
_MAX_FIELDS: Final = 128
_EXPORT: Final = re.compile(r"([A-Z_][A-Z0-9_]{0,63})=(.*)", re.DOTALL)
_VERBOSE: Final = re.compile(r"\S{1,9} \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}.{0,40}? \[s=[0-9a-f]{1,32};")
_PRETTY: Final = re.compile(r'\s{1,16}"([A-Z_][A-Z0-9_]{0,63})" : (.{1,16384}?),?\s*\Z')
_CALLED_OUT: Final = ("\x1e{", "data: {")


def entries(lines: Iterable[bytes | str]) -> Iterable[bytes | str]:
    """Give the lines of a log, where they are of such a form one for each entry."""
    rest = iter(lines)
    begin = list(itertools.islice(rest, _LOOK))
    whole = itertools.chain(begin, rest)
    texts = [text for text in map(_text, begin) if text.strip() and not text.startswith("-- ")]
    if not texts:
        return whole
    if texts[0].startswith(_CALLED_OUT):
        return (_text(line).removeprefix("\x1e").removeprefix("data: ") for line in whole)
    if _EXPORT.match(texts[0]) and texts[0].startswith("__"):
        return _export(whole)
    if _VERBOSE.match(texts[0]):
        return _verbose(whole)
    if texts[0] == "{" and len(texts) > 1 and _PRETTY.match(texts[1]):
        return _pretty(whole)
    return whole


def _text(line: bytes | str) -> str:
    return (line.decode("utf-8", "replace") if isinstance(line, bytes) else line).rstrip("\r\n")


def _export(lines: Iterable[bytes | str]) -> Iterator[str]:
    fields: dict[str, str] = {}
    for line in map(_text, lines):
        match = _EXPORT.match(line)
        if match is not None and len(fields) < _MAX_FIELDS:
            fields[match[1]] = match[2]
        elif not line and fields:
            yield _entry(fields)
            fields = {}
    if fields:
        yield _entry(fields)


def _verbose(lines: Iterable[bytes | str]) -> Iterator[str]:
    fields: dict[str, str] = {}
    for line in map(_text, lines):
        if line[:1] == " " and (match := _EXPORT.match(line.lstrip())) is not None:
            if len(fields) < _MAX_FIELDS:
                fields[match[1]] = match[2]
        elif _VERBOSE.match(line):
            if fields:
                yield _entry(fields)
            fields = {}
    if fields:
        yield _entry(fields)


def _pretty(lines: Iterable[bytes | str]) -> Iterator[str]:
    fields: list[str] = []
    for line in map(_text, lines):
        match = _PRETTY.match(line)
        if match is not None and len(fields) < _MAX_FIELDS:
            fields.append(f'"{match[1]}":{match[2]}')
        elif line.startswith("}") and fields:
            yield "{" + ",".join(fields) + "}"
            fields = []


def _entry(fields: dict[str, str]) -> str:
    return msgspec.json.encode(fields).decode()
