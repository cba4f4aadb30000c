"""How long to wait before asking again: exponential, jittered so that ten thousand agents do not come back together."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Waits that double from ``initial`` to ``maximum`` seconds, each drawn from its upper half."""

    def __init__(self, initial: float, maximum: float, *, draw: Callable[[], float] = random.random) -> None:
        self._initial = initial
        self._maximum = maximum
        self._draw = draw
        self._failures = 0

    def after_failure(self, *, at_least: float | None = None) -> float:
        """Count a failure and give the seconds to wait; a server's ``Retry-After`` is a floor under the jitter."""
        step = min(self._maximum, self._initial * 2.0 ** min(self._failures, 32))
        self._failures += 1
        if at_least:
            return at_least + step * self._draw()
        return step * (0.5 + 0.5 * self._draw())

    def reset(self) -> None:
        """Start again from ``initial``: things went well."""
        self._failures = 0
