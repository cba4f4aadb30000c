"""The limits of what NVML counts, from ``data/nvml_limits.json``, where each stands with its source."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import NamedTuple


class Rate(NamedTuple):
    """How fast one counter may rise."""

    says: str
    per_second: float
    burst: float


class Limits(NamedTuple):
    """All of them."""

    remapped_rows: int
    retired_pages: int
    aggregate_uncorrected: int
    volatile_corrected: int
    nvlink_errors: dict[int, Rate]
    """By NVML's field number."""
    nvlinks: dict[str, int]
    """Part of a model's name → links that must be active on a whole board of ``board`` GPUs."""
    board: int
    replays: dict[int, float]
    """PCIe generation → replays a minute and lane."""
    fabric_grace: float


@functools.cache
def limits() -> Limits:
    """Read them."""
    told = json.loads((Path(__file__).parent / "data" / "nvml_limits.json").read_text(encoding="utf-8"))
    memory = {name: int(row["most"]) for name, row in told["memory"].items()}
    return Limits(
        **memory,
        nvlink_errors={
            int(field): Rate(row["says"], float(row["per_second"]), float(row["burst"]))
            for field, row in told["nvlink_errors"].items()
        },
        nvlinks=told["nvlinks"]["models"],
        board=told["nvlinks"]["gpus"],
        replays={int(gen): float(most) for gen, most in told["pcie_replays"]["per_minute_and_lane"].items()},
        fabric_grace=float(told["fabric"]["grace_seconds"]),
    )
