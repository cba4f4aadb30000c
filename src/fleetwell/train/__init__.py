"""The job side: the launcher (``fleetwell run``) and the library that a training script imports.

The launcher must start in a blink and must not pay for torch, the workers need torch anyway. So nothing here imports
torch: what needs it is loaded when a script first asks for it by name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checkpoint import Checkpointer
    from .errors import (
        CheckpointDamagedError,
        CheckpointError,
        Drained,
        NotInitializedError,
        StaleGenerationError,
    )
    from .rehearsal import warm_up
    from .session import Job, init
    from .stepping import steps

__all__ = [
    "CheckpointDamagedError",
    "CheckpointError",
    "Checkpointer",
    "Drained",
    "Job",
    "NotInitializedError",
    "StaleGenerationError",
    "init",
    "steps",
    "warm_up",
]

_HOME = {
    "CheckpointDamagedError": "errors",
    "CheckpointError": "errors",
    "Checkpointer": "checkpoint",
    "Drained": "errors",
    "Job": "session",
    "NotInitializedError": "errors",
    "StaleGenerationError": "errors",
    "init": "session",
    "steps": "stepping",
    "warm_up": "rehearsal",
}


def __getattr__(name: str) -> object:
    """Load what a script asks for, and only that."""
    home = _HOME.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(f".{home}", __name__), name)
