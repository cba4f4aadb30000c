"""How often somebody may ask: a bounded number of token buckets, one for each who asks."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable


class Allowance:
    """Lets each key do a thing ``burst`` times at once, and once more every ``every`` seconds.

    :param keys: of so many the last use is remembered. The one that was not heard of for longest is forgotten, so its
        allowance is full again; a flood of keys must be stopped by another allowance before this one.
    """

    def __init__(
        self, burst: int, every: float, *, keys: int = 1024, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._every = every
        self._keys = keys
        self._monotonic = monotonic
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Take one; give 0.0, or the seconds to wait where there is none left (then nothing was taken)."""
        now = self._monotonic()
        left, at = self._left.pop(key, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) / self._every)
        wait = 0.0
        if left >= 1.0:
            left -= 1.0
        else:
            wait = (1.0 - left) * self._every
        self._left[key] = (left, now)
        if len(self._left) > self._keys:
            self._left.popitem(last=False)
        return wait
