"""Numbers that only one process can have, and that only grow: files made by exclusive create.

A coordinator whose pod was cut off and one that replaced it must not start generations of one number, and a generation
that was given up but still runs somewhere must not commit a checkpoint over its successor's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

_WIDTH = 10


class Claim(msgspec.Struct, frozen=True):
    """Who took a number: the run, and the generation of that run."""

    run_id: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    """The newest number taken in a directory (0: none) and who took it (None: not readable, or none)."""

    number: int
    claim: Claim | None


def newest(directory: Path) -> Fence:
    """Look up the newest number taken in ``directory``."""
    try:
        taken = [int(item.name) for item in directory.iterdir() if item.name.isdigit()]
    except FileNotFoundError:
        return Fence(0, None)
    if not taken:
        return Fence(0, None)
    number = max(taken)
    try:
        claim = msgspec.json.decode((directory / f"{number:0{_WIDTH}d}").read_bytes(), type=Claim)
    except (OSError, msgspec.DecodeError):
        claim = None  # being written at this moment, or torn by a crash: the number counts all the same
    return Fence(number, claim)


def take(directory: Path, claim: Claim, *, at_least: int = 1) -> int:
    """Take the next number in ``directory``; two processes never get the same one."""
    directory.mkdir(parents=True, exist_ok=True)
    while True:
        number = max(newest(directory).number + 1, at_least)
        try:
            handle = os.open(directory / f"{number:0{_WIDTH}d}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            continue
        try:
            os.write(handle, msgspec.json.encode(claim))
            os.fsync(handle)
        finally:
            os.close(handle)
        return number
