"""Reads the tables of ``dcgmi health -c`` and ``dcgmi diag -r N``, of DCGM 3.x and 4.x.

A table is whole when its last line is a border as long as its first.
"""

from __future__ import annotations

import re

from fleetwell.probes.dcgm_document import Document, Result, Status, entity, status
from fleetwell.probes.dcgm_errors import Error
from fleetwell.probes.dcgm_json import take_health

_BORDER = re.compile(r"\+-+(?:\+-+)*\+")
_RULE = re.compile(r"\+=+(?:\+=+)*\+")
_SECTION = re.compile(r"[|+]-+\s+(?P<name>\S.*?)\s+-+\+-+[|+]")
_ROW = re.compile(r"\|(?P<left>.*?)\|(?P<right>.*)\|")
_WIDE = re.compile(r"\|(?P<left>[^|]*)\|")
_RESULT = re.compile(
    r"(?:(?P<kind>GPU|CPU|NVSwitch)\s*(?P<of>\d+)\s*:\s*)?(?P<status>[A-Za-z]+(?: Run)?)(?P<rest>\s*[-:].*)?"
)
_ENTITIES = re.compile(r"GPUs?:\s*(?P<numbers>[\d,\s]+)")
_MESSAGE = re.compile(r"(?P<kind>Warning|Error|Info)\b\W*(?:GPU\s*(?P<of>\d+))?.*", re.IGNORECASE)
_ARROW = re.compile(r"(?P<depth>\s*)->\s*(?P<name>.*)")
_OLD_ENTITY = re.compile(r"(?P<kind>GPU|NvSwitch|Switch)(?:\s+ID)?:?\s+(?P<of>\d+)", re.IGNORECASE)
_OLD_SYSTEM = re.compile(
    r"(?P<system>[\w/ ]*?(?:system|subsystem|Driver)[\w ]*):?\s+-?\s*(?P<status>Healthy|Warning|Failure)\b(?P<said>.*)"
)
_NARROWEST = 40
"""Characters: a column that DCGM breaks messages in is wider, and a table without a message may be narrower."""
_BLANKS = 2
_OVERALL = re.compile(r"Overall Health:?\s*(?P<status>[A-Za-z]*)")


def is_health(lines: list[str]) -> bool:
    """Tell a health report from a diagnostic."""
    return any("Health Monitor Report" in line or "Overall Health" in line for line in lines)


def read(lines: list[str]) -> Document:
    """Read the drawn lines of one table."""
    rows = [line.strip() for line in lines]
    document = _health(rows) if is_health(rows) else _diag(rows)
    closed = rows[-1] if _BORDER.fullmatch(rows[-1]) or _RULE.fullmatch(rows[-1]) else ""
    drawn = [row for row in rows if _BORDER.fullmatch(row) or _RULE.fullmatch(row)]
    if len(closed) < max(map(len, drawn), default=1) or not any(_RULE.fullmatch(row) for row in rows):
        document.problems.append("the table is not closed: it was cut off")
    return document


class _Diag:
    def __init__(self) -> None:
        self.document = Document("diag")
        self._section = ""
        self._test = ""
        self._message: list[str] | None = None
        self._of = ""
        self._messages: list[tuple[str, str, list[str]]] = []

    def section(self, name: str) -> None:
        self._section, self._test, self._message = name, "", None

    def row(self, left: str, right: str) -> None:
        if self._section.lower() == "metadata" or (left, right) == ("Diagnostic", "Result"):
            return
        message = _MESSAGE.fullmatch(left)
        if message:
            self._message = [right]
            of = message["of"] or (about[1] if (about := re.match(r"GPU (\d+)\b", right)) else "")
            if message["kind"].lower() != "info":
                self._messages.append((self._test, of, self._message))
            return
        result = _RESULT.fullmatch(right)
        said = status(result["status"]) if result else None
        if left:
            self._test, self._message = left, None
        if result is not None and said is not None and self._test:
            self._results(result, said)
        elif not left and self._message is not None:
            self._message.append(right)
        elif left or right:
            self.document.problems.append(f"a row that is not understood: {left} | {right}"[:120])

    def _results(self, result: re.Match[str], said: Status) -> None:
        if result["of"]:
            numbers = [entity(result["kind"], result["of"])]
        else:
            listed = _ENTITIES.search(result["rest"] or "")
            numbers = [part.strip() for part in listed["numbers"].split(",") if part.strip()] if listed else [""]
        self.document.results += [Result(self._test, said, number) for number in numbers]

    def finish(self) -> Document:
        """Give each message to the result that it explains."""
        for test, of, texts in self._messages:
            bad = [
                one
                for one in self.document.results
                if one.test == test and one.status not in {Status.PASS, Status.SKIP} and one.entity in {of, ""}
            ] or [one for one in self.document.results if one.test == test and one.status is not Status.PASS]
            for one in bad[:1] if not of else bad:
                one.errors.append(Error(" ".join(texts)))
        # A test's own row sums up the rows of its GPUs, where there are any that say the same.
        told = {(one.test, one.status) for one in self.document.results if one.entity}
        kept = [one for one in self.document.results if one.entity or (one.test, one.status) not in told]
        self.document.results = kept
        if not self.document.results:
            self.document.problems.append("it has no test's row")
        return self.document


def _whole_messages(rows: list[str]) -> list[str]:
    """Put messages together again that DCGM broke at the end of its column, in the middle of a word or at a space.

    It leaves two blanks before the border. A row that ends earlier was not broken there: its text ends or is continued
    in words.
    """
    whole: list[str] = []
    gap: str | None = None
    for row in rows:
        cell = None if _SECTION.fullmatch(row) else _ROW.fullmatch(row)
        text = cell["right"][1:].rstrip() if cell else ""
        if cell is not None and gap is not None and text and not cell["left"].strip():
            whole[-1] = f"{whole[-1][:-1].rstrip()}{'' if text[0] == ' ' else gap}{text} |"
        else:
            whole.append(row)
        left = len(cell["right"]) - 1 - len(text) if cell and len(text) >= _NARROWEST else _BLANKS + 2
        gap = "" if left <= _BLANKS else " " if left == _BLANKS + 1 else None
    return whole


def _diag(rows: list[str]) -> Document:
    reader = _Diag()
    for row in _whole_messages(rows):
        section = _SECTION.fullmatch(row)
        if section:
            reader.section(section["name"])
        elif not _BORDER.fullmatch(row) and not _RULE.fullmatch(row):
            cells = _ROW.fullmatch(row)
            if cells is None:
                reader.document.problems.append(f"a row that is not understood: {row[:80]}")
            else:
                reader.row(cells["left"].strip(), cells["right"].strip())
    return reader.finish()


def _health(rows: list[str]) -> Document:
    document = Document("health")
    found: list[tuple[tuple[str, ...], str]] = []
    path: list[tuple[int, str]] = []
    for row in _whole_messages(rows):
        cells = _ROW.fullmatch(row) or _WIDE.fullmatch(row)
        if cells is None:
            if not _BORDER.fullmatch(row) and not _RULE.fullmatch(row):
                document.problems.append(f"a row that is not understood: {row[:80]}")
            continue
        left, right = cells["left"].rstrip(), (cells.groupdict().get("right") or "").strip()
        overall = _OVERALL.search(f"{left} {right}")
        if overall:
            found.append((("Overall Health",), overall["status"]))
            path = []
        elif "Health Monitor Report" not in left:
            _place(found, path, left, right)
    take_health(document, found)
    return document


def _place(found: list[tuple[tuple[str, ...], str]], path: list[tuple[int, str]], left: str, right: str) -> None:
    """Put a row below the names that stand above it."""
    arrow, old = _ARROW.fullmatch(left), _OLD_ENTITY.fullmatch(left.strip())
    if old:
        path[:] = [(0, "GPU" if old["kind"].upper() == "GPU" else old["kind"]), (1, old["of"])]
    elif left.strip():
        depth = 1 + len(arrow["depth"]) if arrow else 0
        while path and path[-1][0] >= depth:
            path.pop()
        path.append((depth, (arrow["name"] if arrow else left).strip()))
    if not right:
        return
    system = _OLD_SYSTEM.match(right) if not left.strip() or old else None
    if system:
        path[:] = [*path[:2], (2, system["system"].strip())]
        found.append((tuple(name for _, name in path), system["status"]))
        right = system["said"].strip(" -:")
        if not right:
            return
    found.append((tuple(name for _, name in path), right))
