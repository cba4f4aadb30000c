"""What DCGM's outputs come down to, in whichever version and form they were printed."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from fleetwell.probes.dcgm_errors import Error


class Status(enum.StrEnum):
    """Result of one test, or state of one part."""

    PASS = "Pass"  # noqa: S105 (a word of the tool)
    FAIL = "Fail"
    WARN = "Warn"
    SKIP = "Skip"
    NOT_RUN = "Not Run"


_WORDS = {
    "pass": Status.PASS,
    "passed": Status.PASS,
    "healthy": Status.PASS,
    "fail": Status.FAIL,
    "failed": Status.FAIL,
    "failure": Status.FAIL,
    "warn": Status.WARN,
    "warning": Status.WARN,
    "skip": Status.SKIP,
    "skipped": Status.SKIP,
    "not run": Status.NOT_RUN,
    "notrun": Status.NOT_RUN,
}


def status(word: str) -> Status | None:
    """Read a status; None for a word that is none."""
    return _WORDS.get(word.strip().lower())


@dataclass
class Result:
    """What one test says of one GPU, or of everything."""

    test: str
    status: Status
    entity: str = ""
    """``0`` for GPU 0; empty where it is of the whole machine or of all; ``nvswitch/3`` for others."""
    errors: list[Error] = field(default_factory=list)


@dataclass
class Document:
    """One output."""

    kind: str
    """``health`` or ``diag``."""
    results: list[Result] = field(default_factory=list)
    overall: Status | None = None
    """Health only: what DCGM sums up."""
    uuids: dict[str, str] = field(default_factory=dict)
    """GPU number → UUID, where the output tells."""
    blind: list[str] = field(default_factory=list)
    """What DCGM says that it cannot do on this machine."""
    problems: list[str] = field(default_factory=list)
    """Why it is not to be believed as a whole."""


def entity(group: str, number: object) -> str:
    """Name an entity: a GPU by its number, others with their kind."""
    kind = group.strip().lower()
    return str(number) if kind in {"", "gpu"} else f"{kind.replace(' ', '')}/{number}"
