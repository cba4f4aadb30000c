"""Which component is at which PCI address, as the probes say and as the log itself teaches.

Bounded: a log with countless addresses in it names no more components than a machine can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fleetwell.health.pci_address import normalise_pci
from fleetwell.health.vocabulary import HOST, Component, gpu, nic, nvlink, nvswitch

_MAX_LEARNED: Final = 64
MAX_UNKNOWN: Final = 64
"""Addresses that no probe knows; what is said of still more of them is put to the host."""


class DeviceNames:
    """Addresses and names. ``version`` changes whenever an answer may have changed."""

    def __init__(self) -> None:
        self.version = 0
        self._gpus: dict[str, str] = {}
        self._nics: dict[str, str] = {}
        self._learned: dict[str, str] = {}
        self._unknown: set[str] = set()

    def set(self, gpus: Mapping[str, str], nics: Mapping[str, str]) -> None:
        """Take what the probes say: addresses in any spelling to GPU UUIDs and to device names."""
        self._gpus = {normalise_pci(address): uuid for address, uuid in gpus.items()}
        self._nics = {normalise_pci(address): name for address, name in nics.items()}
        self.version += 1

    def learn(self, address: str, uuid: str) -> None:
        """Take what the driver's own line says at load."""
        if len(self._learned) < _MAX_LEARNED and self._learned.get(address) != uuid:
            self._learned[address] = uuid
            self.version += 1

    def known(self) -> frozenset[bytes]:
        """Give the addresses, as the driver prints them, of the GPUs that a probe or the log has named."""
        return frozenset(address.encode() for address in (*self._gpus, *self._learned))

    def gpu(self, address: str | None, link: int | None = None) -> Component:
        """Name the GPU at a normalised address, or one of its links; the host where that cannot be said."""
        if not address:
            return HOST
        uuid = self._gpus.get(address) or self._learned.get(address)
        if uuid is None and not self._room(address):
            return HOST
        name = uuid or f"pci-{address}"
        return gpu(name) if link is None else nvlink(name, link)

    def switch(self, address: str | None) -> Component:
        """Name the NVSwitch at a normalised address."""
        return nvswitch(address) if address and self._room(address) else HOST

    def nic(self, address: str | None, device: str | None) -> Component:
        """Name the network adapter at an address (with its function), or of a device name."""
        if address:
            known = self._nics.get(normalise_pci(address))
            if known is not None:
                return nic(known)
            return nic(f"pci-{address}") if self._room(address) else HOST
        return nic(device) if device and self._room(device) else nic("unknown")

    def _room(self, name: str) -> bool:
        if name in self._unknown:
            return True
        if len(self._unknown) >= MAX_UNKNOWN:
            return False
        self._unknown.add(name)
        return True
