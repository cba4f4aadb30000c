"""The last word of a launcher, where Kubernetes looks for it: the pod's termination message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

if TYPE_CHECKING:
    from .protocol import Concluded

PATH = "FLEETWELL_TERMINATION_LOG"
_KUBERNETES = Path("/dev/termination-log")
_MOST = 4096  # bytes that Kubernetes keeps
_log = structlog.get_logger()


def leave_word(concluded: Concluded) -> None:
    """Write why the run ended as one line of JSON: reason, root (node, rank, code, last line), class, steps."""
    named = os.environ.get(PATH)
    path = Path(named) if named else _KUBERNETES
    if not named and not path.exists():
        return
    root = concluded.root
    word = {
        "reason": concluded.reason,
        "generation": concluded.generation,
        "class": "unknown",
        "node": root.node if root else None,
        "rank": root.rank if root else None,
        "code": root.code if root else None,
        "cause": root.cause if root else concluded.why[:500],
        "evidence": root.line[:1000] if root else "",
        "last_step": concluded.last_step,
        "saved_step": concluded.saved_step,
    }
    try:
        path.write_bytes(msgspec.json.encode(word)[:_MOST])
    except OSError as error:
        _log.warning("the termination message is not written", path=str(path), error=str(error))
