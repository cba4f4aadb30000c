"""Reads any output of ``nvidia-smi``: tells the form, judges every GPU in it, and says what it could not tell.

Nothing here touches the machine, so the same rules hold for a file that somebody sent and for the agent's own child.
What is not understood to its end is never a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetwell.probes import nvidia_smi_judge, nvidia_smi_nvlink
from fleetwell.probes.nvidia_smi_complaints import LIMIT, Complaint, by_code, complaint, harmless
from fleetwell.probes.nvidia_smi_document import Document, Field, GpuAnswers
from fleetwell.probes.nvidia_smi_findings import Findings, GpuJudge
from fleetwell.probes.nvidia_smi_forms import split
from fleetwell.probes.pasted import plain

PROBE = "nvidia_smi"
MAX_CHARACTERS = 4 << 20
"""The XML of 16 GPUs with a thousand processes is a tenth of this."""
MAX_LINES = 50_000
_NOT_HERE = frozenset({"GpuMissing", "DriverNotLoaded", "DriverOperandMissing"})
"""What a machine without GPUs also says."""


@dataclass
class Asked:
    """What is known beside the output itself."""

    code: int | None = None
    """The tool's exit code, where it is known."""
    expected: int | None = None
    """How many GPUs there must be, where that is known."""
    known: Mapping[str, str] = field(default_factory=dict)
    """UUID → PCI address of the GPUs that this machine was seen to have."""
    in_container: bool | None = None
    """Whether it was printed in a container that was given GPUs; None where nobody says."""
    required: bool = True
    """Whether there must be GPUs at all: where not, a machine without them is no fault."""
    columns: Sequence[str] | None = None
    """The columns that a query without a header was asked for."""


def read(text: str, asked: Asked | None = None) -> Findings:
    """Judge one output of the tool, in any form and with any complaints around it."""
    asked = asked or Asked()
    seen = Findings(PROBE)
    if len(text) > MAX_CHARACTERS or text.count("\n") > MAX_LINES:
        return _nonsense(seen, [f"the output has more than {MAX_CHARACTERS} characters or {MAX_LINES} lines"])
    if not text.strip():
        code = by_code(asked.code or 0, set())
        said = code.said if code else "the tool said nothing"
        return _nonsense(seen, [f"{said}; the output is empty"])
    documents, rest = split(plain(text), asked.columns)
    complaints, problems = _complaints(rest, asked)
    if asked.code is not None:
        by_exit = by_code(asked.code, {one.fault for one in complaints} | _said_by(documents))
        complaints += [by_exit] if by_exit else []
    absent = next((one for one in complaints if one.whole and one.fault in _NOT_HERE), None)
    if absent and not documents and not asked.required:
        seen.absent(absent.said)
        return seen
    names = _Names(documents, asked.known)
    for one in complaints:
        if one.fault:
            seen.fault(one.fault, names.of_complaint(one), one.said, verdict=one.verdict, recovery=one.recovery)
    problems += _judge(seen, documents, names, asked, complaints)
    if not documents and not complaints:
        problems = problems or ["it is no output of nvidia-smi that is known"]
    return _nonsense(seen, problems)


def _complaints(rest: list[str], asked: Asked) -> tuple[list[Complaint], list[str]]:
    """Read the lines that are no part of a document; one that is not understood is a problem."""
    found: list[Complaint] = []
    problems: list[str] = []
    for line in rest:
        one = complaint(line, in_container=asked.in_container)
        if one is not None:
            if len(found) < LIMIT:
                found.append(one)
        elif not harmless(line):
            problems.append(f"a line that is not understood: {line.strip()[:120]}")
    return found, problems[:4]


def _said_by(documents: list[Document]) -> set[str]:
    """Say whether a document itself holds what a bad exit code may stand for."""
    return {told for document in documents for gpu in document.gpus for told in _errors(gpu)}


def _errors(gpu: GpuAnswers) -> set[str]:
    scratch = Findings(PROBE)
    nvidia_smi_judge.readings(GpuJudge(scratch, "host", gpu))
    return {fault for fault, _ in scratch.noted}


class _Names:
    """Names every GPU in the same way, whichever of the forms shows it: by UUID where any of them tells it."""

    def __init__(self, documents: list[Document], known: Mapping[str, str]) -> None:
        self._uuids = {_short(pci): uuid for uuid, pci in known.items()}
        self._places: dict[str, str] = {}
        for gpu in (gpu for document in documents for gpu in document.gpus):
            uuid, pci = gpu.one(Field.UUID), gpu.one(Field.PCI)
            if uuid and pci:
                self._uuids[_short(pci)] = uuid

    def of(self, gpu: GpuAnswers) -> str:
        """Give a GPU's component."""
        uuid, pci = gpu.one(Field.UUID), gpu.one(Field.PCI)
        if uuid:
            return f"gpu/{uuid}"
        if pci:
            return self.at(pci)
        index = gpu.one(Field.INDEX)
        return f"gpu/index-{index if index.isdigit() else gpu.index}"

    def at(self, pci: str) -> str:
        """Give the component at a PCI address."""
        short = _short(pci)
        return f"gpu/{self._uuids.get(short) or f'pci-{short}'}"

    def of_complaint(self, one: Complaint) -> str:
        """Give the component of which the tool complained."""
        return self.at(one.pci) if one.pci else "host"


def _short(pci: str) -> str:
    """Write ``00000000:53:00.0`` as ``0000:53:00``, as the kernel log's reader does."""
    domain, _, rest = pci.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest.partition('.')[0]}"
    except ValueError:
        return pci.lower()


def _judge(
    seen: Findings, documents: list[Document], names: _Names, asked: Asked, complaints: list[Complaint]
) -> list[str]:
    """Judge every GPU of every document; give what stands against believing it."""
    problems: list[str] = []
    judged: dict[str, set[str]] = {}
    gpus = [gpu for document in documents for gpu in document.gpus]
    sliced = {names.of(gpu) for gpu in gpus if gpu.one(Field.MIG).lower().startswith("enabled")}
    shown: dict[str, GpuAnswers] = {}
    for document in documents:
        judges = {names.of(gpu): GpuJudge(seen, names.of(gpu), gpu) for gpu in document.gpus}
        if len(judges) < len(document.gpus):
            problems.append(f"{document.form}: it shows the same GPU twice")
        nonsense = nvidia_smi_nvlink.judge(judges, sliced)
        problems += [f"{document.form}: {nonsense}"] if nonsense else []
        for component, judge in judges.items():
            nonsense = nvidia_smi_judge.answer(judge)
            problems += [f"{document.form}, {component}: {nonsense}"] if nonsense else []
            judged.setdefault(component, set()).update(judge.judged)
            shown.setdefault(component, judge.gpu)
        nonsense = nvidia_smi_judge.widths(judges)
        problems += [f"{document.form}: {nonsense}"] if nonsense else []
        problems += _whole(document, asked, sum(bool(one.pci) for one in complaints))
    if not problems:
        _count(seen, documents, asked, {one.pci for one in complaints if one.pci}, shown, names)
    for component, gpu in shown.items():
        uuid = gpu.one(Field.UUID) or component.removeprefix("gpu/")
        pci = gpu.one(Field.PCI)
        seen.gpu(
            uuid if uuid.startswith("GPU-") else "",
            f"{_short(pci)}.0" if pci else "",
            gpu.one(Field.SERIAL),
            gpu.one(Field.NAME),
        )
    if documents and not any(judged.values()) and not seen.noted and len(shown) != asked.expected:
        problems.append("it names GPUs and says nothing of how they are")
    _blind(seen, judged, sliced)
    if not problems:
        seen.covers("host", *(component for component, answered in judged.items() if answered))
    return problems


def _whole(document: Document, asked: Asked, lost: int) -> list[str]:
    """Say why a document is not to be believed as a whole."""
    if document.incomplete:
        return [f"{document.form}: {document.incomplete}"]
    shown = len(document.gpus) + lost
    if document.attached is not None and shown < document.attached:
        return [f"{document.form}: it shows {shown} of the {document.attached} GPUs that it says are attached"]
    if document.attached is not None and len(document.gpus) > document.attached:
        return [f"{document.form}: it shows {len(document.gpus)} GPUs and says that {document.attached} are attached"]
    if not document.counts_as_whole and (asked.expected is None or shown < asked.expected):
        return [f"{document.form}: the list of processes that ends it is not there, so rows may be missing"]
    return []


def _count(
    seen: Findings,
    documents: list[Document],
    asked: Asked,
    lost: set[str],
    shown: Mapping[str, GpuAnswers],
    names: _Names,
) -> None:
    """Compare the number of GPUs with what the machine must have."""
    gone = [
        uuid for uuid, pci in asked.known.items() if f"gpu/{uuid}" not in shown and _short(pci) not in map(_short, lost)
    ]
    if not documents:
        return
    alike: dict[str, set[str]] = {}
    for component in shown:  # One form names a GPU by its UUID, another by its place: these are not two GPUs.
        alike.setdefault(component.partition("-")[0], {names.at(pci) for pci in lost}).add(component)
    listed = max(*(document.attached or 0 for document in documents), *map(len, alike.values()), len(lost))
    if asked.expected is None or listed >= asked.expected:
        if asked.expected is not None:
            seen.covers(*(f"gpu/{uuid}" for uuid in gone))  # Exchanged hardware: the count is right without it.
        return
    said = f"nvidia-smi lists {listed} GPUs of the {asked.expected} that this machine must have"
    if len(gone) == asked.expected - listed:
        for uuid in gone:
            seen.fault("GpuMissing", f"gpu/{uuid}", said)
    else:
        seen.fault("GpuMissing", "host", said)


def _blind(seen: Findings, judged: Mapping[str, set[str]], sliced: set[str]) -> None:
    """Say which questions the output does not answer; a missing answer is no good answer."""
    for question in nvidia_smi_judge.QUESTIONS:
        name = question.__name__
        said = name.replace("_", " ")
        without = [component for component, answered in judged.items() if name not in answered]
        if name == "memory_repair" and sliced & set(without):
            seen.blind(f"nvidia-smi: {said} is not told under MIG by {len(sliced & set(without))} GPUs")
        elif without and name not in nvidia_smi_judge.OPTIONAL:
            seen.blind(f"nvidia-smi: {said} is not told by {len(without)} of {len(judged)} GPUs")


def _nonsense(seen: Findings, problems: list[str]) -> Findings:
    """Note why the output is not to be believed. It asks for no deed: the text may be at fault, not the machine."""
    for said in problems[:4]:
        seen.fault("ProbeNonsense", "host", said, recovery="none")
    return seen
