"""The run directory: ``events.jsonl``, what happened to the run, and the numbers of its generations.

The coordinator appends, people and the demo read; and a coordinator that took over on an otherwise empty job reads how
far its predecessor came. Without a run directory nothing is written and the launchers' memory has to do.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from .fencing import Claim, newest, take
from .protocol import History

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVENTS = "events.jsonl"
GENERATIONS = "generations"


class _Line(msgspec.Struct):
    event: str
    generation: int = 0
    last_step: int = 0
    saved_step: int = 0


class RunRecord:
    """Appends a run's events to its directory, one JSON object a line: ``event``, ``at`` (unix seconds), fields."""

    def __init__(self, directory: Path | None, run_id: str, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._run_id = run_id
        self._clock = clock
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)

    def append(self, event: str, fields: dict[str, object]) -> None:
        """Append one event; one write of one line, so that readers never see half of one."""
        if self._directory is None:
            return
        line = msgspec.json.encode({"event": event, "at": self._clock(), "run_id": self._run_id, **fields}) + b"\n"
        handle = os.open(self._directory / EVENTS, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)

    def number_after(self, at_least: int) -> int:
        """Take the next generation's number, at least ``at_least``."""
        if self._directory is None:
            return at_least
        return take(self._directory / GENERATIONS, Claim(self._run_id, at_least), at_least=at_least)

    def read(self) -> tuple[History, int]:
        """Return how far the run came, and the generation that was started and not ended (0: none)."""
        if self._directory is None:
            return History(), 0
        history, running = History(generation=newest(self._directory / GENERATIONS).number), 0
        try:
            text = (self._directory / EVENTS).read_bytes()
        except FileNotFoundError:
            return history, 0
        for line in text.splitlines():
            try:
                seen = msgspec.json.decode(line, type=_Line)
            except msgspec.DecodeError:
                continue  # the last line of a host that lost power
            if seen.event == "generation_started":
                running = seen.generation
            elif seen.event == "generation_ended":
                running = 0
                history = History(max(history.generation, seen.generation), 0, seen.last_step, seen.saved_step)
        return history, running
