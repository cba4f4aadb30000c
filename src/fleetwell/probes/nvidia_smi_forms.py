"""Tells the forms of ``nvidia-smi``'s output apart, and takes each out of a text that may hold several and more."""

from __future__ import annotations

from collections.abc import Sequence

from fleetwell.probes import nvidia_smi_csv, nvidia_smi_nvlink, nvidia_smi_table, nvidia_smi_text, nvidia_smi_xml
from fleetwell.probes.nvidia_smi_complaints import complaint, harmless
from fleetwell.probes.nvidia_smi_document import Document


def split(text: str, columns: Sequence[str] | None = None) -> tuple[list[Document], list[str]]:
    """Tell the forms apart: give the documents in a text, and the lines that belong to none."""
    documents: list[Document] = []
    text = _take_xml(text, documents)
    loose: list[str] = []
    drawn: list[str] = []
    long: list[list[str]] = []
    for line in _lines(text):
        if nvidia_smi_text.HEAD in line:
            long.append([line])
        elif nvidia_smi_table.is_table(line) and line[:1] in {"|", "+"}:
            drawn.append(line)
        elif long:
            long[-1].append(line)
        else:
            loose.append(line)
    for lines in long:
        document = nvidia_smi_text.read(lines)
        loose += document.rest
        documents.append(document)
    for lines in nvidia_smi_table.apart(drawn):
        if any(line.startswith("|") for line in lines):
            documents.append(nvidia_smi_table.read(lines))
        else:
            loose += lines
    links, loose = nvidia_smi_nvlink.take(loose)
    documents += [links] if links else []
    if not long and any(nvidia_smi_text.is_fragment(line) for line in loose):
        document = nvidia_smi_text.fragment(loose)
        if not documents:  # Beside another form, that one is the whole which a part alone is not.
            document.incomplete = "it is a part that was cut out of it"
        documents, loose = [*documents, document], document.rest
    rest = _rows(loose, documents, columns)
    return documents, rest


def _take_xml(text: str, documents: list[Document]) -> str:
    """Cut the XML documents out."""
    while True:
        starts = [at for mark in ("<?xml", "<!DOCTYPE", f"<{nvidia_smi_xml.ROOT}") if (at := text.find(mark)) >= 0]
        if not starts:
            return text
        end = text.find(f"</{nvidia_smi_xml.ROOT}>", min(starts))
        end = len(text) if end < 0 else end + len(nvidia_smi_xml.ROOT) + 3
        documents.append(nvidia_smi_xml.read(text[min(starts) : end]))
        text = f"{text[: min(starts)]}{text[end:].lstrip()}"


def _rows(loose: list[str], documents: list[Document], columns: Sequence[str] | None) -> list[str]:
    """Take the rows of queries and lists out of the loose lines; give what is left."""
    apart: list[str] = []
    rows: list[str] = []
    for line in loose:
        (apart if harmless(line) or complaint(line, in_container=None) else rows).append(line)
    heads = [number for number, line in enumerate(rows) if nvidia_smi_csv.header(line.rstrip())]
    if any(nvidia_smi_csv.is_listed(line.rstrip()) for line in rows):
        document = nvidia_smi_csv.listing([line.rstrip("\n") for line in rows])
        documents.append(document)
        return apart + document.rest
    if not heads and (columns or (rows and not documents and all("," in line for line in rows))):
        document = nvidia_smi_csv.read(rows, nvidia_smi_csv.asked_columns(columns) if columns else None)
        documents.append(document)
        return apart + document.rest
    rest = apart + rows[: heads[0] if heads else len(rows)]
    for head, following in zip(heads, [*heads[1:], len(rows)], strict=False):
        document = nvidia_smi_csv.read(rows[head + 1 : following], nvidia_smi_csv.header(rows[head].rstrip()))
        documents.append(document)
        rest += document.rest
    return rest


def _lines(text: str) -> list[str]:
    """Split at line feeds only, and keep them: other breaks may be part of a process's name."""
    parts = text.replace("\r\n", "\n").split("\n")
    return [*(part + "\n" for part in parts[:-1]), *([parts[-1]] if parts[-1] else [])]
