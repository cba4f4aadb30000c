"""Reads the rows of ``nvidia-smi --query-gpu=… --format=csv``, and of ``-L``.

With a header any set of columns will do. Without one, and without being told what was asked, only cells that cannot
mean two things are read, and the others leave the answer open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetwell.probes.nvidia_smi_document import Document, Field, GpuAnswers, Told, told
from fleetwell.probes.nvidia_smi_fields import column

_HEADING = re.compile(r"(?P<name>[a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)(?:\s*\[(?P<unit>[^\]]*)\])?")
_LISTED = re.compile(r"GPU (?P<index>\d+): (?P<name>.*?) \(UUID: (?P<uuid>GPU-[0-9a-fA-F-]{36})\)\s*")
_SLICE = re.compile(r"\s+MIG .*\(UUID: MIG-.*\)\s*")
_WHOLE = re.compile(
    r"0|GPU-[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
    r"|0x[0-9a-fA-F]{16}|\[[^\]]+\]|(?:\S+ )?(?:MiB|W|MHz|%)|None|Reset|Reboot|Drain P2P|Drain and Reset|Active"
    r"|Not Active|Enabled|Disabled|Yes|No|Completed|Success"
)
"""Cells that are certainly not cut off: what the last line may end with when it has no line break."""

_SHAPES: tuple[tuple[re.Pattern[str], Field], ...] = (
    (re.compile(r"GPU-[0-9a-fA-F-]{36}"), Field.UUID),
    (re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"), Field.PCI),
    (re.compile(r"None|Reset|Reboot|Drain P2P|Drain and Reset|Recover IMEX.*"), Field.RECOVERY_ACTION),
    (re.compile(r"(?:NVIDIA|Tesla|Quadro|GeForce) .*"), Field.NAME),
    (re.compile(r"P\d{1,2}"), Field.PSTATE),
    (re.compile(r"[\d.]+ W"), Field.POWER),
)


def header(line: str) -> list[Field | None] | None:
    """Read a header; None when the line is none. A column that is not judged is None in the list."""
    cells = [_HEADING.fullmatch(cell.strip()) for cell in line.split(",")]
    if not all(cells):
        return None
    fields = [column(cell["name"]) for cell in cells if cell]
    return fields if any(fields) else None


def asked_columns(names: Sequence[str]) -> list[Field | None]:
    """Give the questions of the columns that the tool was asked for."""
    return [column(name.strip()) for name in names]


def read(lines: list[str], columns: list[Field | None] | None) -> Document:
    """Read the rows; what is no row is left in ``rest``."""
    document = Document("query")
    unread = ""
    for number, raw in enumerate(lines):
        line = raw.rstrip("\r\n")
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if columns is not None and len(cells) != len(columns):
            document.rest.append(line)
            continue
        gpu = GpuAnswers(len(document.gpus))
        for place, cell in enumerate(cells):
            asked = columns[place] if columns is not None else _by_shape(cell, place, gpu.index)
            if asked is not None:
                gpu.add(asked, cell)
            elif told(cell) not in {Told.VALUE, Told.NOT_TOLD}:
                gpu.add(Field.OTHER, cell)
            elif columns is None:
                unread = unread or f"it has no header, and a cell can mean several things: {cell[:40]!r}"
        if number == len(lines) - 1 and line == raw and not _WHOLE.fullmatch(cells[-1]):
            unread = unread or f"its last cell may be cut off: {cells[-1][:40]!r}"
        document.gpus.append(gpu)
        count = gpu.one(Field.COUNT)
        if count.isdigit():
            document.attached = int(count)
    document.gpus = _one_round(document.gpus)
    document.incomplete = unread or ("" if document.gpus else "it has no row")
    return document


def _one_round(gpus: list[GpuAnswers]) -> list[GpuAnswers]:
    """Fold the rounds of a query that was repeated (``-l``) into one: what a GPU said in any of them counts.

    Only where each round shows the same GPUs in the same order, so that none is missing in the last one.
    """
    told = [(gpu.one(Field.UUID), gpu.one(Field.PCI), gpu.one(Field.INDEX)) for gpu in gpus]
    size = next((at for at, one in enumerate(told) if at and one == told[0] and any(one)), 0)
    if not size or len(set(told[:size])) < size or told != told[:size] * (len(told) // size):
        return gpus
    for at, gpu in enumerate(gpus[size:], size):
        for asked, values in gpu.answers.items():
            gpus[at % size].answers.setdefault(asked, []).extend(values)
    return gpus[:size]


def listing(lines: list[str]) -> Document:
    """Read what ``-L`` prints; what is no row is left in ``rest``."""
    document = Document("list")
    for raw in lines:
        row = _LISTED.fullmatch(raw)
        if row:
            gpu = GpuAnswers(len(document.gpus))
            for asked, name in ((Field.INDEX, "index"), (Field.NAME, "name"), (Field.UUID, "uuid")):
                gpu.add(asked, row[name])
            document.gpus.append(gpu)
        elif raw.strip() and not _SLICE.fullmatch(raw):
            document.rest.append(raw)
    return document


def is_listed(line: str) -> bool:
    """Tell whether a line is one of ``-L``."""
    return _LISTED.fullmatch(line) is not None


def _by_shape(cell: str, place: int, row: int) -> Field | None:
    if place == 0 and cell == str(row):
        return Field.INDEX
    return next((asked for shape, asked in _SHAPES if shape.fullmatch(cell)), None)
