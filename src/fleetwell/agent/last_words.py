"""What a job's last word says: a hint at the hardware, an explanation of its end without it, or nothing.

A message is what a container of anybody's wrote, so it is hostile, and it leads to a look at the hardware at most.
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import msgspec

from fleetwell.agent.job_reports import JobReport, Trouble

_HARDWARE = re.compile(
    r"CUDA error|CUDA driver|cudaError|CUBLAS_STATUS|CUDNN_STATUS|CUFFT_|NCCL|NVML|NVLink|NVSwitch|\bECC\b|\bXid\b"
    r"|HIP error|GPU (?:is|was|has been) lost|fallen off the bus|no CUDA-capable device|No CUDA GPUs"
    r"|unspecified launch failure|illegal memory access|libfabric|\bEFA\b|ibv_|\bSIG(?:SEGV|BUS|ILL|FPE|ABRT)\b"
    r"|segmentation fault|bus error|illegal instruction",
    re.IGNORECASE,
)
_THE_SCRIPTS_OWN = re.compile(r"out of memory|device-side assert|invalid configuration argument", re.IGNORECASE)


class Said(NamedTuple):
    """What there is in a message."""

    report: JobReport | None = None
    """None: nothing in it suggests the hardware."""
    explains: bool = False
    """It tells why the container ended, so that its exit code has no more to tell."""


class Word(msgspec.Struct, frozen=True):
    """What ``fleetwell run`` writes."""

    reason: str
    generation: int
    rank: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None
    code: Annotated[int, msgspec.Meta(ge=-255, le=255)] | None = None
    cause: str = ""
    evidence: str = ""


def read(said: bytes) -> Said:
    """Read a message."""
    try:
        word = msgspec.json.decode(said, type=Word)
    except (ValueError, RecursionError):  # The last one: brackets in brackets in brackets.
        return _foreign(said.decode(errors="replace"))
    if not word.code or word.reason == "drain":
        return Said(explains=True)
    told = word.evidence or word.cause
    report = JobReport(kind=Trouble.WORKER_DIED, rank=word.rank, exit_code=word.code, evidence=told)
    return Said(report, explains=True)


def _foreign(text: str) -> Said:
    explains = False
    for line in text.splitlines():
        if _THE_SCRIPTS_OWN.search(line):
            explains = True
            continue
        found = _HARDWARE.search(line)
        if found is not None:
            evidence = line[max(0, found.start() - 80) :]
            return Said(JobReport(kind=Trouble.WORKER_DIED, evidence=evidence), explains=True)
    return Said(explains=explains)
