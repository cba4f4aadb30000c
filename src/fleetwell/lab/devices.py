"""GPUs as the lab's kubelet hands them to pods: what the device plugin offers, and who has what."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import msgspec

from fleetwell.lab.site import DEVICE_RESOURCE


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
    _replace(path, msgspec.json.encode(offer))


class Allocations:
    """Which pod has which devices of one node.

    :param checkpoint: where the kubelet notes them, as a real one does.
    """

    def __init__(self, checkpoint: Path | None = None) -> None:
        self.offered: list[Device] = []
        self._checkpoint = checkpoint
        self._taken: dict[str, dict[str, tuple[str, ...]]] = {}

    @property
    def allocatable(self) -> int:
        """How many devices a plugin offers as healthy."""
        return sum(device.healthy for device in self.offered)

    def take(self, pod_uid: str, wanted: Mapping[str, int]) -> tuple[str, ...] | None:
        """Give a pod its devices, the same ones when it asks again; None when there are not so many free.

        :param wanted: by each container of the pod.
        """
        if pod_uid not in self._taken:
            taken = {device for devices in self._taken.values() for ids in devices.values() for device in ids}
            free = [device.id for device in self.offered if device.healthy and device.id not in taken]
            if len(free) < sum(wanted.values()):
                return None
            each = iter(free)
            self._taken[pod_uid] = {name: tuple(islice(each, count)) for name, count in wanted.items() if count}
            self._note()
        return tuple(device for ids in self._taken[pod_uid].values() for device in ids)

    def give_back(self, pod_uid: str) -> None:
        """Take a pod's devices back. Its entry is noted until the next pod gets devices, as by a real kubelet."""
        self._taken.pop(pod_uid, None)

    def _note(self) -> None:
        if self._checkpoint is None:
            return
        entries = [
            {
                "PodUID": pod,
                "ContainerName": container,
                "ResourceName": DEVICE_RESOURCE,
                "DeviceIDs": {"0": ids},
                "AllocResp": "",
            }
            for pod, containers in self._taken.items()
            for container, ids in containers.items()
        ]
        registered = {DEVICE_RESOURCE: [device.id for device in self.offered if device.healthy]}
        # The checksum is over Go's print of the data, and only a kubelet that starts checks it.
        data = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0}
        _replace(self._checkpoint, msgspec.json.encode(data))


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)
