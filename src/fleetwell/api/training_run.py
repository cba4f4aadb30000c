"""TrainingRun: what a training job reports of itself, written by the agent of rank 0's node."""

from __future__ import annotations

import msgspec

from fleetwell.api.fields import Time, wire


class RunFailure(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """The root of one generation's end."""

    at: Time
    generation: int
    rank: int
    node: str
    cause: str
    evidence: str = ""


class TrainingRunSpec(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """Spec of a TrainingRun: the job it belongs to."""

    owner_kind: str
    owner_name: str


class TrainingRunStatus(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """Status of a TrainingRun."""

    phase: str = ""
    generation: int = 0
    world_size: int = 0
    step: int = 0
    checkpoint_step: int = 0
    steps_lost: int = 0
    reported_at: Time | None = None
    failures: tuple[RunFailure, ...] = ()
