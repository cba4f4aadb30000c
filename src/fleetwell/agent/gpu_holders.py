"""Knows which containers of this node hold GPUs, by what the kubelet keeps on disk about the devices it gave away.

- Device plugins: ``device-plugins/kubelet_internal_checkpoint`` names pod, container and resource. An entry outlives
  its pod until the next pod gets devices (Kubernetes, ``cm/devicemanager/checkpoint/checkpoint.go``).
- Dynamic resource allocation: ``dra_manager_state`` names the pods of each claim and the drivers that serve it, not the
  containers (Kubernetes, ``cm/dra/state/checkpoint.go``).

The kubelet writes both anew and renames them. Its checksums are not checked: what is wrong here makes us look too often
or not at all, and nothing more.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fleetwell.agent import host_files
from fleetwell.agent.allocatable import GPU, MIG_PREFIX

DEVICE_PLUGINS: Final = "device-plugins/kubelet_internal_checkpoint"
CLAIMS: Final = "dra_manager_state"
DRIVER: Final = "gpu.nvidia.com"
LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one file. Each device that is offered costs some 50, each that is given away up to 1000."""
MANY: Final = 1024


class _Entry(msgspec.Struct, rename={"pod": "PodUID", "container": "ContainerName", "resource": "ResourceName"}):
    pod: str
    container: str
    resource: str


class _Entries(msgspec.Struct, rename={"entries": "PodDeviceEntries"}):
    entries: list[_Entry] | None = None


class _Plugins(msgspec.Struct, rename={"data": "Data"}):
    data: _Entries


class _Claim(msgspec.Struct, rename={"pods": "PodUIDs", "drivers": "DriverState"}):
    pods: dict[str, Any] | None = None
    drivers: dict[str, Any] | None = None


class _Claims(msgspec.Struct, rename={"claims": "ClaimInfoStateList"}):
    claims: list[_Claim] | None = None


class _Dra(msgspec.Struct, rename={"data": "Data"}):
    data: str
    """JSON once more."""


class GpuHolders:
    """The holders of GPUs, read when the kubelet has written them anew."""

    def __init__(self) -> None:
        self._containers: frozenset[tuple[str, str]] = frozenset()
        self._pods: frozenset[str] = frozenset()
        self._signs: dict[str, host_files.Sign | None] = {}

    def read(self, kubelet: str) -> bool:
        """Read what has changed; tell whether anything has.

        What cannot be read leaves its holders as they were.

        :param kubelet: the kubelet's folder.
        """
        changed = False
        if text := self._anew(f"{kubelet}/{DEVICE_PLUGINS}"):
            changed = self._take_plugins(text)
        if text := self._anew(f"{kubelet}/{CLAIMS}"):
            changed = self._take_claims(text) or changed
        return changed

    def hold(self, pod: str, container: str) -> bool:
        """Tell whether a container holds GPUs, or its pod by a claim."""
        return (pod, container) in self._containers or pod in self._pods

    def _anew(self, path: str) -> bytes:
        sign = host_files.sign(path)
        if sign == self._signs.get(path):
            return b""
        self._signs[path] = sign
        return host_files.whole(path, LIMIT)

    def _take_plugins(self, text: bytes) -> bool:
        try:
            entries = msgspec.json.decode(text, type=_Plugins).data.entries or []
        except (ValueError, RecursionError):
            return False
        held = [(one.pod, one.container) for one in entries if _is_gpu(one.resource)]
        self._containers = frozenset(held[:MANY])
        return True

    def _take_claims(self, text: bytes) -> bool:
        try:
            claims = msgspec.json.decode(msgspec.json.decode(text, type=_Dra).data, type=_Claims).claims or []
        except (ValueError, RecursionError):
            return False
        held = [pod for one in claims if DRIVER in (one.drivers or {}) for pod in one.pods or {}]
        self._pods = frozenset(held[:MANY])
        return True


def _is_gpu(resource: str) -> bool:
    return resource == GPU or resource.startswith((f"{GPU}.", MIG_PREFIX))
