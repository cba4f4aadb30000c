"""What the network probes remember from look to look, in a file of the agent's state folder.

The child keeps it and not the agent: it outlives an agent's restart, so that the flaps of twelve hours still add up
after one. What a boot ends (samples, times, flaps) is forgotten with the boot; what a machine was seen to have is
forgotten with the machine. A disk that cannot be written costs the rates, and it is said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

LASTS = 12 * 3600.0
"""Seconds for which a flap counts; gpud's rule: three within twelve hours."""
MOST_FLAPS = 64
MIN_GAP = 5.0
"""Seconds between two samples that are compared: EFA's keep-alive comes about once a second."""


class PortMemory:
    """One port of this boot."""

    def __init__(self) -> None:
        self.down_since: float | None = None
        self.flaps: list[float] = []
        self.counters: dict[str, int] = {}
        self.netdev = ""
        """Its network interface, as far as the host sees one: a pod may have it for a while."""
        self.levels: dict[str, float] = {}
        self.dead = False
        """Whether the device's admin queue was found dead: it stays so until a keep-alive comes, or a new driver."""
        self.beats = False
        """Whether the device's keep-alives were ever seen to advance."""


class Lasting:
    """What an adapter's port was seen to be on this machine at its best, whatever boot it was."""

    def __init__(self) -> None:
        self.active = False
        self.gbps = 0.0
        self.lanes = 0
        self.pcie_gbps = 0.0


class NicMemory:
    """Everything that is remembered.

    :param path: where it is kept; None: nowhere, so this look stands alone.
    """

    def __init__(self, path: Path | None, serial: str, boot: str, now: float) -> None:
        self.path = path
        self.now = now
        self.sampled_at: float | None = None
        self.ports: dict[str, PortMemory] = {}
        self.lasting: dict[str, Lasting] = {}
        self.said: dict[str, list[list[str]]] = {}
        """What the counters of each probe's devices came to at the last comparison: it holds until the next one."""
        self.waiting: list[tuple[str, str]] = []
        """Components that this look found down, and how, not yet for as long as makes a fault."""
        self.failure = "" if path is not None else "this look stands alone: it shows no rates and no flaps"
        """Why the next look will know nothing of this one."""
        self._serial = serial
        self._boot = boot
        if path is not None:
            self._load(path)

    @property
    def gap(self) -> float | None:
        """Seconds since the sample that counters are compared with; None where there is none."""
        return None if self.sampled_at is None else self.now - self.sampled_at

    @property
    def is_due(self) -> bool:
        """Whether counters are compared in this look: two looks close to each other show no rate."""
        return self.gap is None or self.gap >= MIN_GAP

    def port(self, key: str) -> PortMemory:
        """Give the memory of a port of this boot."""
        return self.ports.setdefault(key, PortMemory())

    def best(self, key: str) -> Lasting:
        """Give what a port was seen to be at its best."""
        return self.lasting.setdefault(key, Lasting())

    def save(self) -> None:
        """Write it; say in ``failure`` why it could not be written."""
        if self.path is None:
            return
        if self.is_due:
            self.sampled_at = self.now
        kept = {
            "serial": self._serial,
            "boot": self._boot,
            "sampled_at": self.sampled_at,
            "ports": {key: vars(port) for key, port in self.ports.items()},
            "lasting": {key: vars(best) for key, best in self.lasting.items()},
            "said": self.said,
        }
        new = self.path.with_suffix(".new")
        try:
            new.write_text(json.dumps(kept), encoding="utf-8")
            os.replace(new, self.path)  # noqa: PTH105 (as pathlib does it, without another object)
        except OSError as error:
            self.failure = f"what was counted cannot be kept in {self.path} ({error.strerror}): no rates, no flaps"

    def _load(self, path: Path) -> None:
        """Take over what fits this machine and this boot; a file that makes no sense is as good as none."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["serial"] != self._serial:
                return
            lasting = {str(key): _filled(Lasting(), row) for key, row in kept["lasting"].items()}
            ports = {str(key): _filled(PortMemory(), row) for key, row in kept["ports"].items()}
            sampled_at = float(kept["sampled_at"])
            said = {str(probe): [[str(word) for word in row] for row in rows] for probe, rows in kept["said"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        self.lasting = lasting
        if kept["boot"] != self._boot or sampled_at > self.now:
            return
        self.ports, self.sampled_at, self.said = ports, sampled_at, said
        for port in ports.values():
            port.flaps = [at for at in port.flaps if self.now - at < LASTS][-MOST_FLAPS:]


_Kept = TypeVar("_Kept", PortMemory, Lasting)
_MADE_OF: dict[str, Callable[[Any], object]] = {
    "down_since": lambda value: None if value is None else float(value),
    "flaps": lambda value: [float(at) for at in value],
    "counters": lambda value: {str(name): int(count) for name, count in value.items()},
    "levels": lambda value: {str(name): float(level) for name, level in value.items()},
    "netdev": str,
    "dead": bool,
    "beats": bool,
    "active": bool,
    "gbps": float,
    "lanes": int,
    "pcie_gbps": float,
}


def _filled(empty: _Kept, row: dict[str, Any]) -> _Kept:
    for name in vars(empty):
        setattr(empty, name, _MADE_OF[name](row[name]))
    return empty
