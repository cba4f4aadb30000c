"""Reads the table that ``nvidia-smi`` prints when it is asked nothing. Few questions, but the form that people paste.

It is whole once the table of processes below it is closed; without that, only a matching count of GPUs shows that no
row is missing.
"""

from __future__ import annotations

import re

from fleetwell.probes.nvidia_smi_document import Document, Field, GpuAnswers

HEAD = "NVIDIA-SMI"
_FIRST = re.compile(
    r"\|\s+(?P<index>\d+|ERR!)\s+(?P<name>\S.*?)\s+(?:On|Off|N/A|ERR!|WDDM|TCC|MCDM)\s*"
    r"\|\s*(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s+(?:On|Off|N/A|ERR!)\s*\|\s*(?P<ecc>\S.*?)\s*\|"
)
_SECOND = re.compile(
    r"\|\s*(?P<fan>ERR!|N/A|\d+%)\s+(?P<temp>ERR!|N/A|\d+C|Unknown Error)\s+(?P<perf>ERR!|N/A|P\d+|Unknown Error)\s+"
    r"(?P<draw>[^/|]+?|N/A)\s*/\s*(?P<cap>[^|]+?)\s*"
    r"\|\s*(?:Not Supported|(?P<used>[^/|]+?)\s*/\s*(?P<total>[^|]+?))\s*"
    r"\|\s*(?P<util>ERR!|N/A|\d+%)\s+(?P<mode>[^|]*?)\s*\|"
)
_SLICE = re.compile(r"\|\s*(?P<index>\d+)(?:\s+\d+){3}\s*\|[^|]*\|\s*\d+\s+(?P<ecc>\S+)\s*\|")
_THIRD = re.compile(r"\|\s*\|\s*\|\s*(?P<mig>\S[^|]*?)\s*\|")
_RULE = re.compile(r"\|=+(?:[+|]=+)*\|")
_BORDER = re.compile(r"\+-+(?:\+-+)*\+")
_HEADINGS = re.compile(r"\|\s*(?:NVIDIA-SMI|GPU\s+Name|Fan\s+Temp|(?:Compute p|P)rocesses|MIG devices)")


def is_table(line: str) -> bool:
    """Tell whether a line is drawn: part of the table."""
    return line.lstrip()[:1] in {"|", "+"}


def apart(lines: list[str]) -> list[list[str]]:
    """Take tables apart that were printed one after the other, as ``-l`` does: each begins with its version's row."""
    tables: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(f"| {HEAD} ") and any(row.startswith("|") for row in tables[-1]):
            border = [tables[-1].pop()] if _BORDER.fullmatch(tables[-1][-1].strip()) else []
            tables.append(border)
        tables[-1].append(line)
    return [table for table in tables if table]


class _Reader:
    def __init__(self) -> None:
        self.document = Document("table", counts_as_whole=False)
        self.where = "head"
        self._gpu: GpuAnswers | None = None
        self._awaited = ""

    def section(self, row: str) -> bool:
        """Take a row that only says what follows."""
        if _RULE.fullmatch(row):
            after = {"head": "gpus", "processes head": "processes", "slices head": "slices"}
            self.where = after.get(self.where, self.where)
        elif row.startswith(("| Processes:", "| Compute processes:")):
            self.where = "processes head"
        elif row.startswith("| MIG devices:"):
            self.where = "slices head"
        else:
            return False
        return True

    def row(self, row: str) -> None:
        """Take a row where GPUs are listed, or may begin to be without a heading, as in what people paste."""
        if self.where.startswith("slices") and (part := _SLICE.match(row)):
            self._slice(part)
        first = _FIRST.match(row)  # Counts wherever it stands: of two tables, the second's head may be missing.
        if (self.where not in {"head", "gpus"} and not first) or _HEADINGS.match(row):
            return
        if first:
            self.expect_no_more()
            self._gpu, self._awaited = _begin(self.document, first), "a GPU's second line is missing"
            self.where = "gpus"
        elif second := _SECOND.match(row):
            if self._gpu is None and self.where == "gpus":
                self.document.incomplete = self.document.incomplete or "a GPU's first line is missing"
            self._gpu = self._gpu or _pasted(self.document)
            _second(self._gpu, second)
            self._awaited = ""
        elif self.where == "gpus":
            self._third(row)

    def _slice(self, part: re.Match[str]) -> None:
        """Take a slice of a divided GPU: its errors are counted there, and the GPU's own cell says only ``On``."""
        for gpu in self.document.gpus:
            if gpu.one(Field.INDEX) == part["index"]:
                gpu.add(Field.VOLATILE_UNCORRECTABLE, part["ecc"])

    def _third(self, row: str) -> None:
        if _BORDER.fullmatch(row):
            self._gpu = None
        elif self._gpu is not None and (third := _THIRD.match(row)):
            self._gpu.add(Field.MIG, third["mig"])
        elif row.strip("| "):
            self.document.incomplete = self.document.incomplete or f"a row that cannot be read: {row[:60]}"

    def expect_no_more(self) -> None:
        self.document.incomplete = self.document.incomplete or self._awaited


def read(lines: list[str]) -> Document:
    """Read the drawn lines."""
    reader = _Reader()
    rows = [line.strip() for line in lines]
    for row in rows:
        if not reader.section(row):
            reader.row(row)
    reader.expect_no_more()
    border = max((len(row) for row in rows if _BORDER.fullmatch(row)), default=0)
    if not reader.document.gpus:
        reader.document.incomplete = "it has no GPU's row"
    elif reader.where == "processes" and _BORDER.fullmatch(rows[-1]) and len(rows[-1]) == border:
        reader.document.counts_as_whole = True
    return reader.document


def _begin(document: Document, first: re.Match[str]) -> GpuAnswers:
    gpu = GpuAnswers(len(document.gpus))
    gpu.add(Field.INDEX, first["index"])
    gpu.add(Field.NAME, first["name"].removesuffix("..."))
    gpu.add(Field.PCI, first["pci"])
    # "Off": memory without ECC, or with ECC switched off. "On": the counts stand with the slices of a divided GPU.
    gpu.add(Field.VOLATILE_UNCORRECTABLE, "N/A" if first["ecc"] in {"Off", "On"} else first["ecc"])
    document.gpus.append(gpu)
    return gpu


def _pasted(document: Document) -> GpuAnswers:
    """Take a lone second line for a GPU: it is what people paste."""
    gpu = GpuAnswers(len(document.gpus))
    document.gpus.append(gpu)
    return gpu


def _second(gpu: GpuAnswers, second: re.Match[str]) -> None:
    gpu.add(Field.FAN, second["fan"])
    gpu.add(Field.TEMPERATURE, second["temp"])
    gpu.add(Field.PSTATE, second["perf"])
    gpu.add(Field.POWER, second["draw"])
    gpu.add(Field.MEMORY_USED, second["used"] or "N/A")
    gpu.add(Field.UTILIZATION, second["util"])
