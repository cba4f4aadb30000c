"""Turns what DCGM complains of into the catalogue's faults, by number where there is one, else by its words."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

HISTORY = 101
"""DCGM's error for Xids. Its health watch keeps them while the engine runs, so there they only show the past."""
UNHEALTHY = "DcgmUnhealthy"

_NOT_HARDWARE = frozenset({"DcgmSettings", "DriverOperandMissing", "GpuReadingFailed"})
"""Faults of the table that the catalogue does not call bad; a child that reads DCGM cannot afford the catalogue."""
_SAID = {"fault", "verdict", "recovery"}
_SEVERITY = {2: ("BAD", ""), 5: ("CONFIG", "none"), 6: ("BAD", "resetGpu")}
"""DCGM's severities of errors that come without a number: isolate, configuration, reset."""


@dataclass(frozen=True)
class Meaning:
    """What an error means; verdict and recovery are the catalogue's where they are empty."""

    fault: str
    """Empty where a test does not fit the GPU, which is no fault."""
    verdict: str = ""
    recovery: str = ""
    history: bool = False
    """It may be long over, and DCGM never takes it back."""

    @property
    def bad(self) -> bool:
        """Whether it is a fault of the hardware for certain."""
        return bool(self.fault) and not self.verdict and not self.harmless and self.fault not in _NOT_HARDWARE

    @property
    def harmless(self) -> bool:
        """Whether the catalogue asks for nothing: such an error explains no failure."""
        return self.fault in {"GpuNoted", "GpuCorrectedErrors", "NvswitchNoted", "NvlinkNoted"} and not self.verdict


OPEN = Meaning(UNHEALTHY, "UNKNOWN", "support")
"""An error that cannot be judged: no new work, and a person looks."""


@dataclass(frozen=True)
class Error:
    """One complaint, as DCGM gave it."""

    said: str
    number: int | None = None
    severity: int | None = None


@dataclass(frozen=True)
class _Text:
    words: re.Pattern[str]
    means: Meaning
    over: frozenset[int]


@dataclass(frozen=True)
class _Table:
    errors: dict[int, Meaning]
    texts: tuple[_Text, ...]
    settings: frozenset[str]


@functools.cache
def _table() -> _Table:
    text = Path(__file__).with_name("data").joinpath("dcgm_errors.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    errors = {int(number): Meaning(**row, history=int(number) == HISTORY) for number, row in data["errors"].items()}
    texts = tuple(
        _Text(
            re.compile(row["words"], re.IGNORECASE),
            errors.get(row["error"], OPEN)
            if "error" in row
            else Meaning(**{key: row[key] for key in row.keys() & _SAID}),
            frozenset(row.get("over", ())),
        )
        for row in data["texts"]
    )
    return _Table(errors, texts, frozenset(data["settings"]["tests"]))


def numbers() -> tuple[int, ...]:
    """Give every error number that is known."""
    return tuple(_table().errors)


def meaning(error: Error) -> Meaning | None:
    """Judge an error: None where neither number nor words nor severity say anything.

    A number that is not known is open unless its words name something bad: that a newer DCGM means less by it than it
    says is not to be guessed.
    """
    text = next((one for one in _table().texts if one.words.search(error.said)), None)
    if error.number:
        known = _table().errors.get(error.number)
        if text and (error.number in text.over or (known is None and text.means.bad)):
            return text.means
        return known or OPEN
    if text:
        return text.means
    if error.severity in _SEVERITY:
        verdict, recovery = _SEVERITY[error.severity]
        return Meaning("DcgmSettings" if verdict == "CONFIG" else UNHEALTHY, verdict, recovery)
    return None


def looks_at_settings(test: str) -> bool:
    """Tell whether a test looks at the machine's settings only."""
    return test.strip().lower() in _table().settings
