"""What the coordinator knows of one node of the job, and what it may tell the world to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from .protocol import History, Refused, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .protocol import Downward, Exited, Hello, Ready


class Stage(StrEnum):
    """Where the run is."""

    FORMING = "forming"
    RUNNING = "running"
    ENDING = "ending"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Terms:
    """What the coordinator was told about the run; limits in seconds."""

    nnodes: int
    run_id: str
    max_restarts: int
    forming_limit: float
    silence_limit: float
    ending_limit: float


@dataclass(slots=True)
class Seat:
    """One node's place in the run, and the launcher that holds it."""

    hello: Hello
    heard: float
    connected: bool = True
    ready: Ready | None = None
    draining: bool = False
    bystander: bool = False
    """It came while a generation of its node's former launcher had not ended: it waits, and has no workers in it."""
    exited: Exited | None = None
    status: Status = field(default_factory=Status)

    @property
    def present(self) -> bool:
        """Whether the next generation can count on this node."""
        return self.connected and self.ready is not None and not self.draining


@dataclass(frozen=True, slots=True)
class Send:
    """Tell a node's launcher something."""

    node: int
    message: Downward


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection of a node's launcher, which is not heard any more."""

    node: int
    why: str


@dataclass(frozen=True, slots=True)
class Record:
    """Append to the run's events, and log."""

    event: str
    fields: dict[str, object]


Instruction = Send | Drop | Record


def adopted(mine: History, theirs: History) -> History:
    """Merge what a launcher remembers into what the coordinator knows: the newer generation's word counts."""
    if theirs.generation != mine.generation:
        newer = mine if mine.generation > theirs.generation else theirs
        return History(newer.generation, max(mine.restarts, theirs.restarts), newer.last_step, newer.saved_step)
    return History(
        generation=mine.generation,
        restarts=max(mine.restarts, theirs.restarts),
        last_step=max(mine.last_step, theirs.last_step),
        saved_step=max(mine.saved_step, theirs.saved_step),
    )


def refusal(terms: Terms, seat: Seat | None, hello: Hello) -> Refused | None:
    """Say why a launcher gets no seat, or None when it does. ``seat`` is who holds the node's seat now."""
    if hello.run_id != terms.run_id:
        return Refused(f"this endpoint serves the run {terms.run_id!r}", again=False)
    if hello.nnodes != terms.nnodes or hello.node >= terms.nnodes:
        why = f"this run has {terms.nnodes} nodes; node {hello.node} of {hello.nnodes} has no seat"
        return Refused(why, again=False)
    if seat is not None and seat.connected and seat.hello.launcher != hello.launcher:
        return Refused(f"the seat of node {hello.node} is taken by another launcher", again=True)
    return None


def named(nodes: Sequence[int]) -> str:
    """Name nodes in a sentence."""
    if not nodes:
        return "a node"  # whose word was lost with its connection
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"
