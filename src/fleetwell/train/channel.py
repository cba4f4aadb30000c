"""The control channel between a launcher and one of its workers: a page of memory that both map.

A worker looks at it and writes to it at every step, so it must cost nothing (about 0.1 µs) and must not need the other
side to answer. And because the page is a file of the launcher, what a worker reached is still there after SIGKILL.
Each slot is one aligned 64-bit word with one writer.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SIZE = 4096


class WorkerPhase(IntEnum):
    """How far a worker is. A script that does not use the library stays at STARTING."""

    STARTING = 0
    STEPPING = 1
    DRAINED = 2


class _Slot(IntEnum):
    DRAIN = 0
    PHASE = 1
    STEP = 2
    SAVED = 3
    RESUMED = 4


class Channel:
    """One worker's page. Steps are counts of completed steps, not indices."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._words = memoryview(memory).cast("q")

    @classmethod
    def create(cls, path: Path) -> Channel:
        """Make the page (the launcher does)."""
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.ftruncate(handle, _SIZE)
            return cls(mmap.mmap(handle, _SIZE))
        finally:
            os.close(handle)

    @classmethod
    def open(cls, path: str | None) -> Channel:
        """Map the launcher's page (a worker does); without a launcher the page is private and nobody asks."""
        if not path:
            return cls(mmap.mmap(-1, _SIZE))
        handle = os.open(path, os.O_RDWR)
        try:
            return cls(mmap.mmap(handle, _SIZE))
        finally:
            os.close(handle)

    def close(self) -> None:
        """Unmap the page."""
        self._words.release()
        self._memory.close()

    @property
    def drain_asked(self) -> bool:
        """Whether the launcher asked for a save and a clean leave."""
        return self._words[_Slot.DRAIN] != 0

    def ask_drain(self) -> None:
        """Ask for a save and a clean leave; there is no way back."""
        self._words[_Slot.DRAIN] = 1

    @property
    def phase(self) -> WorkerPhase:
        """How far the worker is; what a script scribbled there reads as STARTING."""
        try:
            return WorkerPhase(self._words[_Slot.PHASE])
        except ValueError:
            return WorkerPhase.STARTING

    @phase.setter
    def phase(self, phase: WorkerPhase) -> None:
        self._words[_Slot.PHASE] = phase

    @property
    def step(self) -> int:
        """Completed steps."""
        return max(0, self._words[_Slot.STEP])

    @step.setter
    def step(self, step: int) -> None:
        self._words[_Slot.STEP] = step

    @property
    def saved(self) -> int:
        """Step of the newest committed checkpoint."""
        return max(0, self._words[_Slot.SAVED])

    @saved.setter
    def saved(self, step: int) -> None:
        self._words[_Slot.SAVED] = step

    @property
    def resumed(self) -> int:
        """Step that this generation began at."""
        return max(0, self._words[_Slot.RESUMED])

    @resumed.setter
    def resumed(self, step: int) -> None:
        self._words[_Slot.RESUMED] = step
