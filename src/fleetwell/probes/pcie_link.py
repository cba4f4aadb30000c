"""A device's link to the PCI bus, as sysfs has it, and what the port above it says of itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from fleetwell.probes.attribute import text

WIDEST_SLOT = 16
"""Lanes of the widest slot that is built: hypervisors offer x32."""
_SPEED = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,3})?) GT/s")
_WIDEST = 32


class PcieLink(NamedTuple):
    """A device's link to the bus; 0 where sysfs does not say."""

    speed: float
    """GT/s of a lane."""
    lanes: int
    can_speed: float
    """What the device itself can have."""
    can_lanes: int
    slot_speed: float = 0.0
    """What the port above it can have; a virtual machine often does not see one."""
    slot_lanes: int = 0

    @property
    def gbps(self) -> float:
        """What the link carries, in Gb/s, the line code taken off."""
        code = 0.8 if self.speed < 8 else 128 / 130
        return self.speed * self.lanes * code

    @property
    def fits_its_slot(self) -> bool:
        """Whether what the port above says can be: a link has no more than its port, and no port more than x16."""
        return not self.slot_lanes or (
            self.lanes <= self.slot_lanes <= WIDEST_SLOT and (not self.slot_speed or self.speed <= self.slot_speed)
        )

    def without_slot(self) -> PcieLink:
        """Forget what the port above says."""
        return self._replace(slot_speed=0.0, slot_lanes=0)

    def __str__(self) -> str:
        return f"{self.speed:g} GT/s x{self.lanes}"


def read(device: Path, *, has_slot: bool) -> PcieLink:
    """Read a device's link.

    :param device: its folder below the port that it is plugged into.
    :param has_slot: whether that is so: in a copied tree it may lie anywhere.
    """
    slot = device.parent if has_slot else device / "none"
    return PcieLink(
        speed=_speed(text(device / "current_link_speed")),
        lanes=_lanes(text(device / "current_link_width")),
        can_speed=_speed(text(device / "max_link_speed")),
        can_lanes=_lanes(text(device / "max_link_width")),
        slot_speed=_speed(text(slot / "max_link_speed")),
        slot_lanes=_lanes(text(slot / "max_link_width")),
    )


def _speed(said: str) -> float:
    match = _SPEED.match(said)
    return float(match[1]) if match else 0.0


def _lanes(said: str) -> int:
    """Read a width; a device that fell off the bus shows 63, and a virtual one 0 or 255."""
    return int(said) if said.isdecimal() and 0 < int(said) <= _WIDEST else 0
