"""What the judge of ``nvidia-smi`` writes its findings into, and how it reads one GPU's raw answers."""

from __future__ import annotations

import re

from fleetwell.probes.nvidia_smi_document import Field, GpuAnswers, Told, told
from fleetwell.probes.report import Report

_YES = {"yes", "active", "enabled", "1", "true"}
_NO = {"no", "not active", "disabled", "0", "false"}
_COUNT = (0, 1 << 60)
_BOUNDS = {
    Field.VOLATILE_UNCORRECTABLE: _COUNT,
    Field.ROWS_UNCORRECTABLE: _COUNT,
    Field.RETIRED_SINGLE: _COUNT,
    Field.RETIRED_DOUBLE: _COUNT,
    Field.UTILIZATION: (0, 100),
    Field.TEMPERATURE: (-60, 200),
    Field.MEMORY_TEMPERATURE: (-60, 200),
}
"""What an answer can be at all; beyond stand blank values and what was read out of a broken register."""
_NUMBER = re.compile(r"(?P<number>-?\d+(?:\.\d+)?)\s*(?:C|W|MiB|%|x|bank\(s\))?")


class NonsenseError(ValueError):
    """An answer is none that the question can have."""


class Findings(Report):
    """A report that knows its faults, and notes each once however many forms show it."""

    def __init__(self, probe: str) -> None:
        super().__init__(probe)
        self.noted: set[tuple[str, str]] = set()
        """Faults with their components."""
        self._told: set[tuple[str, str, str]] = set()
        self.last_said = ""

    def fault(self, fault: str, component: str, evidence: str, *, verdict: str = "", recovery: str = "") -> None:
        """Note a fault, unless this component has it already with the same verdict."""
        if (fault, component, verdict) not in self._told or fault == "ProbeNonsense":
            self._told.add((fault, component, verdict))
            self.noted.add((fault, component))
            self.last_said = evidence
            super().fault(fault, component, evidence, verdict=verdict, recovery=recovery)


class GpuJudge:
    """Judges one GPU."""

    def __init__(self, seen: Findings, component: str, gpu: GpuAnswers) -> None:
        self.seen = seen
        self.component = component
        self.gpu = gpu
        self.judged: set[str] = set()
        """Questions that got an answer."""

    def fault(self, fault: str, said: str, *, verdict: str = "") -> None:
        """Note a fault of this GPU."""
        self.seen.fault(fault, self.component, said, verdict=verdict)

    def values(self, asked: Field) -> list[str]:
        """Give the real answers to a question."""
        return [value for value in self.gpu.answers.get(asked, ()) if told(value) is Told.VALUE]

    def numbers(self, asked: Field) -> list[float]:
        """Give the real answers as numbers."""
        found = []
        for value in self.values(asked):
            number = _NUMBER.fullmatch(value)
            if number is None:
                raise NonsenseError(f"{asked.value} is {value[:40]!r}")
            counted = float(number["number"])
            least, most = _BOUNDS.get(asked, (counted, counted))
            if not least <= counted <= most:
                raise NonsenseError(f"{asked.value} is {value[:40]!r}")
            found.append(counted)
        return found

    def flags(self, asked: Field) -> list[bool]:
        """Give the real answers as yes or no."""
        found = []
        for value in self.values(asked):
            if value.lower() not in _YES | _NO:
                raise NonsenseError(f"{asked.value} is {value[:40]!r}")
            found.append(value.lower() in _YES)
        return found
