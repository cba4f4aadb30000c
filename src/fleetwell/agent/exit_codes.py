"""What the exit code of a container that held GPUs says: a hint at the hardware, or nothing; by ``exit_codes.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import msgspec

from fleetwell.agent.job_reports import JobReport, Trouble

OOM_KILLED = "OOMKilled"
"""One of the container's processes was killed for want of memory: that explains whatever code its first one gave."""


class ExitCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    code: int
    means: str
    why: str
    look: Trouble | None = None
    """What is reported; None: it hints at nothing."""
    signal: int = 0
    source: str = ""


def _read() -> dict[int, ExitCode]:
    text = (Path(__file__).parent / "data" / "exit_codes.toml").read_text(encoding="utf-8")
    rows = msgspec.convert(tomllib.loads(text), dict[str, list[ExitCode]])["code"]
    return {row.code: row for row in rows}


EXIT_CODES: Final = _read()


def report_of(code: int, reason: str) -> JobReport | None:
    """Give what an end reports; None where nothing in it suggests the hardware.

    :param reason: the runtime's own word for it, mostly empty.
    """
    row = EXIT_CODES.get(code)
    if row is None or row.look is None or reason == OOM_KILLED:
        return None
    number = -row.signal if row.signal else row.code
    return JobReport(kind=row.look, exit_code=number, evidence=f"ended with {code}: {row.means}")
