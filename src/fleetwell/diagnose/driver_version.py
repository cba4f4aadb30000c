"""Finds the driver's version in whatever was given: the layout of NVLink registers depends on it."""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = r"(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\b"
_PLACES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Driver Version\s{{0,40}}:\s{{0,4}}{_VERSION}",  # nvidia-smi -q, and the table's head
        rf"<driver_version>{_VERSION}",
        rf"Driver Version Detected\W{{1,40}}{_VERSION}",  # DCGM
        rf"NVRM: loading NVIDIA UNIX .{{0,60}}?\s{_VERSION}",
        rf"NVRM version: NVIDIA UNIX .{{0,60}}?\s{_VERSION}",  # /proc/driver/nvidia/version
    )
)


def find(text: str) -> str:
    """Give the first version that a text names; empty where it names none."""
    return next((match[1] for pattern in _PLACES if (match := pattern.search(text)) is not None), "")


def branch(version: str) -> int | None:
    """Give a version's branch, ``570`` of ``570.133.20``; None where it is no version."""
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else None
