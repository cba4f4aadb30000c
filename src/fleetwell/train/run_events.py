"""The events of a run, as ``events.jsonl`` has them: one function each, so that their fields stand in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .protocol import Reason
from .seats import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .protocol import Concluded, Draining, Failure, History, Start, Status


def started(start: Start) -> Record:
    """A generation's workers are being started."""
    world, nodes = sum(start.nprocs), len(start.nprocs)
    fields = {"generation": start.generation, "world": world, "nodes": nodes, "restarts": start.restarts}
    return Record("generation_started", {**fields})


def resumed(status: Status, before: History) -> Record:
    """A generation steps: from where, and how many steps its predecessor had done beyond that."""
    lost = max(0, before.last_step - status.resumed)
    fields = {"generation": status.generation, "resumed_step": status.resumed, "last_step": before.last_step}
    return Record("generation_resumed", {**fields, "steps_lost": lost})


def worker_failed(generation: int, failure: Failure) -> Record:
    """A worker died by itself. The first of a generation need not be its root."""
    fields = {"generation": generation, "node": failure.node, "rank": failure.rank}
    return Record("worker_failed", {**fields, "code": failure.code, "line": failure.line})


def drain_asked(generation: int, node: int, draining: Draining) -> Record:
    """A node got SIGTERM."""
    fields = {"generation": generation, "node": node}
    return Record("drain_asked", {**fields, "grace_s": draining.grace, "can_save": draining.can_save})


def ended(concluded: Concluded, abandoned: Sequence[int]) -> Record:
    """A generation is over on all nodes; ``abandoned`` are processes that survived SIGKILL."""
    fields: dict[str, object] = {"generation": concluded.generation, "reason": concluded.reason, "why": concluded.why}
    steps = {"last_step": concluded.last_step, "saved_step": concluded.saved_step, "restarts": concluded.restarts}
    return Record("generation_ended", {**fields, "root": concluded.root, **steps, "abandoned": list(abandoned)})


def orphaned(generation: int, known: History) -> Record:
    """The end of a generation whose coordinator was lost, told by its successor."""
    why = "its coordinator was lost with node 0's launcher"
    fields: dict[str, object] = {"generation": generation, "reason": Reason.LAUNCHER_LOST, "why": why, "root": None}
    steps = {"last_step": known.last_step, "saved_step": known.saved_step, "restarts": known.restarts}
    return Record("generation_ended", {**fields, **steps, "abandoned": []})


def finished(concluded: Concluded) -> Record:
    """The run is over."""
    code = concluded.finish or 0
    return Record("run_finished", {"code": code, "why": concluded.why, "last_step": concluded.last_step})
