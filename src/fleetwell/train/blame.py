"""Which of several deaths was the root.

When one rank dies its peers follow within 10 to 80 ms, because their collectives break, and a rank that ends with a
traceback may take longer to exit than the peers that it took down. Deaths are ordered by arrival at the coordinator,
so that no clocks of two hosts are compared; a death whose last words blame a peer is a consequence while there is one
whose last words do not.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .protocol import Failure

_BLAMES_A_PEER = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted)"
    r"|closed by peer|reset by peer|broken pipe|remote (?:worker|process)"
    r"|EnforceNotMet|DistNetworkError|DistStoreError|socket timeout|NCCL communicator was aborted",
    re.IGNORECASE,
)


def is_consequence(failure: Failure) -> bool:
    """Whether the last words of a worker blame one of its peers."""
    if failure.code in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS):
        return False  # nobody's closed socket raises these; the last line is older than the death
    return _BLAMES_A_PEER.search(failure.line) is not None


def root_of(failures: Sequence[Failure]) -> Failure | None:
    """Return the root among the deaths of one generation, given in order of arrival."""
    return next((failure for failure in failures if not is_consequence(failure)), failures[0] if failures else None)


def cause_of(code: int) -> str:
    """Say what an exit status means: ``exited with code 3``, ``was killed by SIGKILL``."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"


def exit_code_of(root: Failure | None) -> int:
    """Return the launcher's exit code for a run that failed: the root's own, 1 for a signal."""
    return root.code if root is not None and root.code > 0 else 1
