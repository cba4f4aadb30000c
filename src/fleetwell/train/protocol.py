"""What launchers and the coordinator say to one another: JSON lines over TCP, every line bounded.

The endpoint is open to whoever reaches the port, as torchrun's is. So a line is one of these messages within its
bounds, or the connection is closed; nothing that is received is executed, put into a command or used as a path.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

MAX_LINE = 64 * 1024
"""Longest line in bytes; a failure's evidence is cut to fit long before."""

Text = Annotated[str, msgspec.Meta(max_length=2048)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e7)]


class Outcome(StrEnum):
    """How the workers of one launcher ended."""

    DONE = "done"
    DRAINED = "drained"
    FAILED = "failed"
    ENDED = "ended"


class Reason(StrEnum):
    """Why a generation ended."""

    DONE = "done"
    DRAIN = "drain"
    FAILURE = "failure"
    LAUNCHER_LOST = "launcher_lost"
    NEVER_FORMED = "never_formed"


class Failure(msgspec.Struct, frozen=True):
    """One worker's death: ``code`` as the kernel told it, negative for a signal."""

    node: Count
    rank: Count
    pid: Count
    code: int
    cause: Text
    line: Text = ""

    def sentence(self) -> str:
        """Say it for a log: who, how, and the last thing it wrote to stderr."""
        said = f", last line: {self.line}" if self.line else ""
        return f"rank {self.rank} on node {self.node} {self.cause}{said}"


class History(msgspec.Struct, frozen=True):
    """What a launcher remembers of the run, so that a replaced coordinator can pick it up."""

    generation: Count = 0
    restarts: Count = 0
    last_step: Count = 0
    saved_step: Count = 0


class Hello(msgspec.Struct, frozen=True, tag=True):
    """First line of every connection: who this is, and the generation whose end it has not been told of (0: none)."""

    node: Count
    nnodes: Count
    nproc: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    run_id: Text
    launcher: Text
    running: Count = 0
    history: History = History()


class Ready(msgspec.Struct, frozen=True, tag=True):
    """This node's seat is idle; if it is node 0, rank 0's store can listen here."""

    address: Text
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Status(msgspec.Struct, frozen=True, tag=True):
    """Heartbeat, with the progress of this node's workers (steps are counts of completed steps)."""

    generation: Count = 0
    stepping: bool = False
    step: Count = 0
    saved: Count = 0
    resumed: Count = 0


class WorkerFailed(msgspec.Struct, frozen=True, tag=True):
    """A worker died by itself; sent at once, before its siblings are ended."""

    generation: Count
    failure: Failure


class Exited(msgspec.Struct, frozen=True, tag=True):
    """None of this node's workers of the generation runs any more (``abandoned``: those that survived SIGKILL)."""

    generation: Count
    outcome: Outcome
    last_step: Count
    saved_step: Count
    abandoned: Annotated[tuple[int, ...], msgspec.Meta(max_length=4096)] = ()


class Draining(msgspec.Struct, frozen=True, tag=True):
    """This node got SIGTERM and will leave; ``can_save`` is false when nothing steps here yet."""

    grace: Seconds
    can_save: bool


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The seat is yours; ``coordinator`` changes when another process took over the endpoint."""

    coordinator: Text


class Refused(msgspec.Struct, frozen=True, tag=True):
    """No seat; with ``again`` it may come free."""

    why: Text
    again: bool


class Start(msgspec.Struct, frozen=True, tag=True):
    """Start the workers of a generation; ``nprocs`` is the number of workers per node, in node order."""

    generation: Count
    master_addr: Text
    master_port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    restarts: Count
    nprocs: Annotated[tuple[int, ...], msgspec.Meta(max_length=65536)]


class End(msgspec.Struct, frozen=True, tag=True):
    """End the workers of a generation now."""

    generation: Count
    why: Text


class Concluded(msgspec.Struct, frozen=True, tag=True):
    """A generation is over on all nodes. ``finish`` is the exit code when the run is over too."""

    generation: Count
    reason: Reason
    why: Text
    last_step: Count = 0
    saved_step: Count = 0
    restarts: Count = 0
    root: Failure | None = None
    finish: int | None = None


class Pong(msgspec.Struct, frozen=True, tag=True):
    """The coordinator heard the heartbeat."""


Upward = Hello | Ready | Status | WorkerFailed | Exited | Draining
Downward = Welcome | Refused | Start | End | Concluded | Pong

_upward = msgspec.json.Decoder(Upward)
_downward = msgspec.json.Decoder(Downward)
_encoder = msgspec.json.Encoder()


class ProtocolError(ValueError):
    """A line was not one of the messages; the connection it came from is closed."""


def encode(message: Upward | Downward) -> bytes:
    """One message as one line."""
    return _encoder.encode(message) + b"\n"


def decode_upward(line: bytes) -> Upward:
    """Read a launcher's line."""
    try:
        return _upward.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(str(error)) from error


def decode_downward(line: bytes) -> Downward:
    """Read a coordinator's line."""
    try:
        return _downward.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(str(error)) from error
