"""The clock of a proof's worker, and the moment by which it must be done. Tests give a clock of their own."""

from __future__ import annotations

import time
from collections.abc import Callable


class Time:
    """Counts seconds, and says when none are left.

    :param within: seconds from now.
    """

    def __init__(self, within: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._end = clock() + within

    def over(self) -> bool:
        """Whether the time is up."""
        return self.now() >= self._end

    def left(self) -> float:
        """Give the seconds that are left, never fewer than 0."""
        return max(0.0, self._end - self.now())
