"""GPUs as the lab's kubelet hands them to pods: what the device plugin offers, and who has what."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Device(msgspec.Struct, frozen=True):
    """One device that a plugin offers."""

    id: str
    healthy: bool


class Offer(msgspec.Struct, frozen=True):
    """What a plugin offers now, and the process that offers it: with the process the offer ends."""

    pid: int
    devices: list[Device]


def read_offer(path: Path) -> list[Device] | None:
    """Read what the plugin offers; None when no plugin offers anything, or the one that did has ended."""
    try:
        offer = msgspec.json.decode(path.read_bytes(), type=Offer)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return offer.devices if Path(f"/proc/{offer.pid}").exists() else None


def write_offer(path: Path, offer: Offer) -> None:
    """Write an offer so that a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(offer))
    new.replace(path)


class Allocations:
    """Which pod has which devices of one node."""

    def __init__(self) -> None:
        self.offered: list[Device] = []
        self._taken: dict[str, tuple[str, ...]] = {}

    @property
    def allocatable(self) -> int:
        """How many devices a plugin offers as healthy."""
        return sum(device.healthy for device in self.offered)

    def take(self, pod_uid: str, count: int) -> tuple[str, ...] | None:
        """Give a pod its devices, the same ones when it asks again; None when there are not so many free."""
        if pod_uid not in self._taken:
            taken = {device for devices in self._taken.values() for device in devices}
            free = [device.id for device in self.offered if device.healthy and device.id not in taken]
            if len(free) < count:
                return None
            self._taken[pod_uid] = tuple(free[:count])
        return self._taken[pod_uid]

    def give_back(self, pod_uid: str) -> None:
        """Take a pod's devices back."""
        self._taken.pop(pod_uid, None)
