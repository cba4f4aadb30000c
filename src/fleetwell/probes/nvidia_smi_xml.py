"""Reads ``nvidia-smi -q -x``. The best form: its end is marked, and a process name cannot look like a field.

Declared entities are refused before they can grow; a document type that is only named (the tool names its own) is
never fetched.
"""

from __future__ import annotations

from xml.parsers import expat

from fleetwell.probes.nvidia_smi_document import Document, Field, GpuAnswers
from fleetwell.probes.nvidia_smi_fields import note

ROOT = "nvidia_smi_log"
MAX_DEPTH = 24


class _EntityError(Exception):
    """The document declares an entity, which the tool never does."""


class _Reader:
    def __init__(self) -> None:
        self.document = Document("XML")
        self.closed = False
        self._stack: list[str] = []
        self._text: list[str] = []
        self._gpu: GpuAnswers | None = None
        self._leaf = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise _EntityError(f"elements are nested deeper than {MAX_DEPTH}")
        self._stack.append(tag)
        self._text = []
        self._leaf = True
        if self._stack == [ROOT, "gpu"]:
            self._gpu = GpuAnswers(len(self.document.gpus))
            self.document.gpus.append(self._gpu)
            if "id" in attributes:
                self._gpu.add(Field.PCI, attributes["id"])
        elif self._gpu is not None and len(self._stack) == 3:
            self._gpu.sections.add(tag)

    def data(self, text: str) -> None:
        self._text.append(text)

    def end(self, tag: str) -> None:
        value = "".join(self._text).strip()
        path = self._stack[1:]
        self._stack.pop()
        if not self._stack:
            self.closed = tag == ROOT
        elif path == ["attached_gpus"] and value.isdigit():
            self.document.attached = int(value)
        elif path == ["gpu"]:
            self._gpu = None
        elif self._gpu is not None and self._leaf and path[1] not in {"processes", "accounted_processes"}:
            note(self._gpu, "/".join(path[1:]), value)
        self._leaf = False
        self._text = []


def read(text: str) -> Document:
    """Read one document."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, _EntityError) as error:
        reader.document.incomplete = f"it is no whole XML document: {error}"
        return reader.document
    if not reader.closed:
        reader.document.incomplete = f"its root is not {ROOT}"
    elif reader.document.attached is None and len(reader.document.gpus) == 0:
        reader.document.incomplete = "it has no GPU's part"
    return reader.document


def _refuse(name: str, *_rest: object) -> None:
    raise _EntityError(f"it declares the entity {name[:32]!r}")
