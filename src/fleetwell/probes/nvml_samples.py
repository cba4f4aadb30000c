"""What the NVML child remembers from look to look: counters show a rate only against the look before.

The child keeps it in a file of the agent's state folder, so it outlives the agent's restart; the times are of the
clock that counts from the boot, so no step of the wall clock makes a rate. Another boot or another machine begins anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

MIN_GAP = 5.0
"""Seconds between two samples that are compared: a look that was asked for may follow another at once."""
IN_A_ROW = 2
"""Comparisons beyond the limit, one after the other, that make a fault: one burst may pass by itself."""


class Samples:
    """Everything that is remembered.

    :param path: where it is kept; None: nowhere, so this look stands alone.
    :param now: seconds since the boot.
    """

    def __init__(self, path: Path | None, serial: str, boot: str, now: float) -> None:
        self.now = now
        self.said: list[list[str]] = []
        """Fault, component and evidence of the latest comparison: they hold until the next one."""
        self.failure = "" if path is not None else "this look stands alone: it shows no rates"
        """Why the next look will know nothing of this one."""
        self._path = path
        self._kept_for = {"serial": serial, "boot": boot}
        self._at: float | None = None
        self._counters: dict[str, dict[str, int]] = {}
        self._streaks: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._new: dict[str, dict[str, int]] = {}
        self._over: dict[str, int] = {}
        self._lasting: dict[str, float] = {}
        if path is not None:
            self._load(path)

    @property
    def gap(self) -> float | None:
        """Seconds since the sample before; None where there is none."""
        return None if self._at is None else self.now - self._at

    @property
    def is_due(self) -> bool:
        """Whether counters are read and compared in this look."""
        return self.gap is None or self.gap >= MIN_GAP

    def begin(self) -> None:
        """Compare anew: what was said before is forgotten."""
        self.said = []

    def rise(self, device: str, counter: str, count: int, *, per_second: float, burst: float = 0.0) -> int | None:
        """Note a count; give how much it rose where it rises faster than it may, again and again, else None.

        A counter that fell was begun anew by a reset.
        """
        self._new.setdefault(device, {})
        if count:
            self._new[device][counter] = count
        before = self._counters.get(device)
        if before is None or self.gap is None:
            return None
        rose = count - before.get(counter, 0)
        if rose <= burst + per_second * self.gap:
            return None
        key = f"{device} {counter}"
        self._over[key] = self._streaks.get(key, 0) + 1
        return rose if self._over[key] >= IN_A_ROW else None

    def lasted(self, what: str) -> float:
        """Note that something holds now; give the seconds for which it has done so, as far as is known."""
        self._lasting[what] = self._since.get(what, self.now)
        return self.now - self._lasting[what]

    def save(self) -> None:
        """Write it; say in ``failure`` why it could not be written."""
        if self._path is None:
            return
        due = self.is_due
        kept = {
            **self._kept_for,
            "at": self.now if due else self._at,
            "counters": self._new if due else self._counters,
            "streaks": self._over if due else self._streaks,
            "since": self._lasting,
            "said": self.said,
        }
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(kept), encoding="utf-8")
            os.replace(new, self._path)  # noqa: PTH105 (as pathlib does it, without another object)
        except OSError as error:
            self.failure = f"what was counted cannot be kept in {self._path} ({error.strerror}): no rates"

    def _load(self, path: Path) -> None:
        """Take over what fits this machine and this boot; a file that makes no sense is as good as none."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if any(kept[name] != value for name, value in self._kept_for.items()) or float(kept["at"]) > self.now:
                return
            counters = {
                str(device): {str(name): int(count) for name, count in row.items()}
                for device, row in kept["counters"].items()
            }
            streaks = {str(key): int(times) for key, times in kept["streaks"].items()}
            since = {str(what): float(at) for what, at in kept["since"].items()}
            said = [[str(fault), str(component), str(words)] for fault, component, words in kept["said"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        self._at = float(kept["at"])
        self._counters, self._streaks, self._since, self.said = counters, streaks, since, said
