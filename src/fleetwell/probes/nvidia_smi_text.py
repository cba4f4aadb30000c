"""Reads the long form, ``nvidia-smi -q``: headings by indentation, one block for each GPU.

The form has no end mark. A block with an identity (``GPU UUID``) is whole once its list of processes has come, and
has the same headings as its neighbours of the same model; blocks without one are the ``-d`` selections.
"""

from __future__ import annotations

import re

from fleetwell.probes.nvidia_smi_document import Document, Field, GpuAnswers, label
from fleetwell.probes.nvidia_smi_fields import BELOW, SECTIONS, note

HEAD = "NVSMI LOG"
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_LINE = re.compile(r"(?P<label>\S.*?)\s*:(?:\s(?P<value>.*))?$")
_INNER = re.compile(r"[ \t]{4,}[A-Z][\w ./()-]* +: \S.*")
_TOP = frozenset({"timestamp", "driver_version", "cuda_version", "attached_gpus", "vgpu_driver_capability"})
_NEEDS = {
    "ecc_errors": "aggregate",
    "remapped_rows": "remapping_failure_occurred",
    "retired_pages": "pending",
    "gpu_reset_status": "drain_and_reset_recommended",
}
"""Sections that are only whole once this heading has come in them (or they have a value themselves)."""


class _Reader:
    def __init__(self, *, cut_out: bool = False) -> None:
        self.document = Document("long form")
        self.cut_out = cut_out
        """Whether it reads a part of the form, whose first lines may have lost their indentation."""
        self.broken = ""
        self.gpu: GpuAnswers | None = None
        self.paths: set[str] = set()
        """Of the GPU that is being read."""
        self._stack: list[tuple[int, str]] = []

    def begin(self, pci: str) -> None:
        self.broken = self.broken or _unfinished(self.gpu, self.paths)
        self.gpu = GpuAnswers(len(self.document.gpus))
        self.gpu.add(Field.PCI, pci)
        self.document.gpus.append(self.gpu)
        self._stack, self.paths = [], set()

    def top(self, line: str, name: str, value: str | None) -> None:
        """Take a line without indentation."""
        if name == "attached_gpus" and value and value.isdigit():
            self.document.attached = int(value)
        elif name not in _TOP and (self.gpu is not None or value is None):
            self.document.rest.append(line)

    def inner(self, line: str, name: str, value: str | None, *, cut: bool) -> None:
        """Take a line of a GPU's part."""
        if self.gpu is None:
            self.document.rest.append(line)
            return
        indent = len(line) - len(line.lstrip(" \t"))
        while self._stack and (self._stack[-1][0] >= indent or (self.cut_out and name in SECTIONS)):
            self._stack.pop()
        path = "/".join([*(above for _, above in self._stack), name])
        self._stack.append((indent, name))
        self.paths.add(path)
        if len(self._stack) == 1:
            self.gpu.sections.add(name)
            if self.cut_out and name in BELOW:
                self.broken = self.broken or f"nothing says what {line.strip()[:40]!r} is of"
        if value is not None and not path.startswith("processes/"):
            note(self.gpu, path, value)
        if cut and not _ends_well(value):
            self.broken = self.broken or f"it ends in the middle of {line.strip()[:40]!r}"


def read(lines: list[str]) -> Document:
    """Read the lines from the form's first one on; what is no part of it is left in ``rest``."""
    reader = _Reader()
    _take(reader, lines)
    document = reader.document
    document.incomplete = reader.broken or _unfinished(reader.gpu, reader.paths) or _compare(document)
    return document


def _take(reader: _Reader, lines: list[str]) -> None:
    for number, raw in enumerate(lines):
        line = raw.rstrip("\r\n")
        if not line.strip() or HEAD in line:
            continue
        begins = _GPU.fullmatch(line)
        if begins:
            reader.begin(begins[1])
            continue
        parts = _LINE.fullmatch(line.strip())
        name = label(parts["label"] if parts else line)
        value = (parts["value"] or "").strip() if parts else None
        if line[0] in " \t" or (reader.cut_out and name in SECTIONS):
            reader.inner(line, name, value, cut=line == raw and number == len(lines) - 1)
        else:
            reader.top(line, name, value)


def is_fragment(line: str) -> bool:
    """Tell whether a line may be of the long form's inside: what people cut out of it with grep."""
    parts = _LINE.fullmatch(line.strip())
    known = parts is not None and bool(parts["value"]) and label(parts["label"]) in SECTIONS
    return known or _INNER.fullmatch(line.rstrip()) is not None


def fragment(lines: list[str]) -> Document:
    """Read lines of the inside without the form's head. What they say counts; alone they are no pass."""
    first = next((number for number, line in enumerate(lines) if is_fragment(line)), len(lines))
    headed = any(_GPU.fullmatch(line.rstrip()) for line in lines[: first + 1])
    reader = _Reader(cut_out=True)
    if not headed:
        reader.gpu = GpuAnswers(0)
        reader.document.gpus.append(reader.gpu)
    _take(reader, lines)
    reader.document.incomplete = reader.broken or _cut_off(reader.gpu, reader.paths)
    reader.document.attached = None
    return reader.document


def _unfinished(gpu: GpuAnswers | None, paths: set[str]) -> str:
    """Say what is missing at the end of a GPU's block."""
    if gpu is None:
        return ""
    if cut := _cut_off(gpu, paths):
        return cut
    pci = gpu.one(Field.PCI)
    if Field.UUID in gpu.answers or "product_name" in gpu.sections:
        return "" if "processes" in gpu.sections else f"the part of GPU {pci} ends before its processes"
    return "" if gpu.sections else f"nothing follows the heading of GPU {pci}"


def _cut_off(gpu: GpuAnswers | None, paths: set[str]) -> str:
    """Say which section of a GPU's block lacks its end."""
    if gpu is None:
        return ""
    pci = gpu.one(Field.PCI)
    for section, needed in _NEEDS.items():
        whole = any(path.startswith(f"{section}/{needed}") for path in paths)
        if section in gpu.sections and any(path.startswith(f"{section}/") for path in paths) and not whole:
            return f"the part {section} of GPU {pci} is cut off"
    return ""


def _ends_well(value: str | None) -> bool:
    """Say whether a last line without a line break is whole by itself."""
    if value is None:
        return False
    return value in {"None", "N/A", "Not Active", "disabled"} or value.endswith((" MiB", " %"))


def _compare(document: Document) -> str:
    if not document.gpus:
        return "it has no GPU's part"
    if document.attached is None and any("product_name" in gpu.sections for gpu in document.gpus):
        return "it does not say how many GPUs are attached"
    first = document.gpus[0]
    for gpu in document.gpus[1:]:
        same = gpu.one(Field.NAME) == first.one(Field.NAME)
        missing = first.sections - gpu.sections
        if same and missing:
            return f"the part of GPU {gpu.one(Field.PCI)} lacks {min(missing)}, which GPU {first.one(Field.PCI)} has"
    return ""
