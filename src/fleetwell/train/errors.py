"""What can go wrong for a training script, one sentence each."""

from __future__ import annotations


class Drained(SystemExit):
    """All ranks saved the same step and this worker leaves, because one of the job's nodes has to go.

    It is a SystemExit with code 0, so that ``except Exception`` in a script does not swallow it and ``finally`` runs.
    """

    def __init__(self, step: int) -> None:
        super().__init__(0)
        self.step = step


class NotInitializedError(RuntimeError):
    """Something of the library was used before ``fleetwell.train.init()``."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; the message says which and what is left on disk."""


class CheckpointDamagedError(CheckpointError):
    """Checkpoints are there, and none of them matches its own manifest."""


class StaleGenerationError(CheckpointError):
    """A newer generation writes into this checkpoint directory, so this one must not."""
