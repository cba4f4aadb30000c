"""What any form of ``nvidia-smi``'s output comes down to: for each GPU, the raw answers to the questions that matter.

The four forms differ in their words only, so each has a reader that ends here, and one judge
(:mod:`fleetwell.probes.nvidia_smi_judge`) reads them all.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field


class Field(enum.StrEnum):
    """Questions whose answers are judged, or that tell which GPU it is."""

    INDEX = "index"
    NAME = "name"
    UUID = "uuid"
    SERIAL = "serial"
    PCI = "PCI address"
    COUNT = "count"
    MIG = "MIG mode"
    RECOVERY_ACTION = "recovery action"
    RESET_REQUIRED = "reset required"
    DRAIN_AND_RESET = "drain and reset recommended"
    GEN_MAX = "highest PCIe generation"
    GEN = "PCIe generation"
    WIDTH_MAX = "highest PCIe width"
    WIDTH = "PCIe width"
    PSTATE = "performance state"
    CLOCK_MASK = "clocks event reasons"
    HW_SLOWDOWN = "hardware slowdown"
    HW_THERMAL = "hardware thermal slowdown"
    HW_POWER_BRAKE = "power brake"
    UTILIZATION = "utilization"
    MEMORY_USED = "memory used"
    ECC_MODE = "ECC mode"
    VOLATILE_UNCORRECTABLE = "volatile uncorrectable ECC errors"
    SRAM_THRESHOLD = "SRAM threshold exceeded"
    REPAIR_PENDING = "repair pending"
    UNREPAIRABLE = "unrepairable memory"
    RETIRED_SINGLE = "pages retired for single-bit errors"
    RETIRED_DOUBLE = "pages retired for double-bit errors"
    PAGES_PENDING = "page retirement pending"
    ROWS_UNCORRECTABLE = "rows remapped for uncorrectable errors"
    ROWS_PENDING = "row remap pending"
    ROWS_FAILED = "row remap failed"
    TEMPERATURE = "temperature"
    MARGIN = "thermal margin"
    SLOWDOWN_TEMPERATURE = "slowdown temperature"
    MEMORY_TEMPERATURE = "memory temperature"
    MEMORY_MAX_TEMPERATURE = "highest memory temperature"
    POWER = "power draw"
    FAN = "fan speed"
    FABRIC_STATE = "fabric state"
    FABRIC_STATUS = "fabric status"
    FABRIC_HEALTH = "fabric health"
    OTHER = "a reading that is not judged"
    """Kept only when the tool gave an error for it."""


class Told(enum.Enum):
    """What kind of answer a value is."""

    VALUE = enum.auto()
    NOT_TOLD = enum.auto()
    FAILED = enum.auto()
    LOST = enum.auto()
    NEEDS_RESET = enum.auto()


_WORDS = {
    "": Told.NOT_TOLD,
    "n/a": Told.NOT_TOLD,
    "not supported": Told.NOT_TOLD,
    "not available": Told.NOT_TOLD,
    "function not found": Told.NOT_TOLD,
    "insufficient permissions": Told.NOT_TOLD,
    "requested functionality has been deprecated": Told.NOT_TOLD,
    "err!": Told.FAILED,
    "unknown error": Told.FAILED,
    "timeout": Told.FAILED,
    "system is not in ready state": Told.FAILED,
    "gpu is lost": Told.LOST,
    "gpu requires reset": Told.NEEDS_RESET,
    "requires reset": Told.NEEDS_RESET,
}


def told(value: str) -> Told:
    """Tell what kind of answer a raw value is."""
    return _WORDS.get(value.strip().strip("[]").strip().rstrip(".").lower(), Told.VALUE)


@dataclass
class Links:
    """A GPU's NVLinks, as the tool's own command for them prints them."""

    states: dict[int, bool] = field(default_factory=dict)
    """Whether each is active."""
    counts: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """Counters of each, with their names."""
    none_active: bool = False
    """The tool says so, and names none."""

    def active(self) -> set[int]:
        """Give those that are."""
        return {link for link, up in self.states.items() if up}


@dataclass
class GpuAnswers:
    """One GPU as the tool printed it. A question may have several answers: each memory has its own count."""

    index: int
    """Its place in the output."""
    answers: dict[Field, list[str]] = field(default_factory=dict)
    sections: set[str] = field(default_factory=set)
    """Top-level headings of the long form, to see whether one GPU's part was cut off."""
    links: Links | None = None
    """Only in the form that tells of nothing else."""

    def add(self, asked: Field, value: str) -> None:
        """Note an answer. All are kept: a process name with a line break must not overwrite an earlier one."""
        self.answers.setdefault(asked, []).append(value.strip())

    def one(self, asked: Field) -> str:
        """Give the first real answer; empty where there is none."""
        return next((value for value in self.answers.get(asked, ()) if told(value) is Told.VALUE), "")


@dataclass
class Document:
    """One output of the tool, in any of its forms."""

    form: str
    gpus: list[GpuAnswers] = field(default_factory=list)
    attached: int | None = None
    """How many GPUs the output says there are."""
    incomplete: str = ""
    """Why it is not whole; empty where it is."""
    counts_as_whole: bool = True
    """Whether the form itself shows its end: where it does not, only a matching count does."""
    rest: list[str] = field(default_factory=list)
    """Lines that are no part of it."""


_LABEL = re.compile(r"[^a-z0-9]+")


def label(text: str) -> str:
    """Write a heading of the long form as the XML writes its tags: ``GPU T.Limit Temp`` → ``gpu_t_limit_temp``."""
    return _LABEL.sub("_", text.lower()).strip("_")
