"""Reads ``dcgmi discovery -l``: how many GPUs DCGM's engine sees, and which number is which UUID.

The engine goes on with 0 GPUs when it lost them all, and calls itself well (eks-node-monitoring-agent #241).
"""

from __future__ import annotations

import re
from typing import Final

from fleetwell.probes.report import Report

PROBE: Final = "dcgm"
_FOUND: Final = re.compile(
    r"^\s*(\d{1,4}) (?:active )?GPUs? found(?: \(Active\))?\.?\s*$", re.MULTILINE | re.IGNORECASE
)
_NAMELESS: Final = re.compile(r"\bName: <<<NULL>>>")


def count(text: str) -> int | None:
    """Give how many GPUs a text says that DCGM found; None where it is no such list."""
    found = _FOUND.search(text)
    return int(found[1]) if found else None


def nameless(text: str) -> int:
    """Give of how many GPUs the engine could not even read the name (DCGM #229)."""
    return len(_NAMELESS.findall(text))


def judge(found: int, expected: int | None, unread: int = 0) -> Report:
    """Judge the count. Where nothing says how many there must be, none at all is still a fault.

    :param unread: how many of those found the engine can read nothing of.
    """
    seen = Report(PROBE)
    if unread:
        said = f"DCGM finds {found} GPUs and can read nothing of {unread}"
        seen.fault("ProbeNonsense", "host", said, recovery="none")
    if found < (1 if expected is None else expected):
        must = "" if expected is None else f" of the {expected} that this machine must have"
        seen.fault("GpuMissing", "host", f"DCGM finds {found} GPUs{must}")
    elif expected is None:
        seen.blind(f"dcgm: whether the {found} GPUs that it finds are all that there must be, and how they are")
    else:
        seen.covers("host")
    return seen
