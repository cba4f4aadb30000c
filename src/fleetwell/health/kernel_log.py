"""Reads the kernel log for what it says about GPUs, NVSwitches and network adapters.

:func:`parse` reads one message. :class:`KernelLogReader` is fed with records and gives observations: it drops what
user space wrote, joins the records of one event, puts addresses to components, and says when records are missing.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from fleetwell.health.driver_line import DriverKind, DriverLine, parse_driver
from fleetwell.health.evidence import evidence
from fleetwell.health.kernel_findings import Meaning, by_catalogue, of_driver, of_nic, of_switch, of_xid
from fleetwell.health.kmsg_record import KmsgRecord
from fleetwell.health.nic_line import NicLine, parse_nic
from fleetwell.health.pci_address import normalise_pci
from fleetwell.health.sxid_line import SxidLine, parse_sxid
from fleetwell.health.vocabulary import HOST, Component, Observation, Recovery, gpu, nic, nvlink, nvswitch
from fleetwell.health.xid_line import XidLine, parse_xid

KernelEvent = XidLine | SxidLine | DriverLine | NicLine

_MAX_TEXT: Final = 2048
_MAX_LEARNED: Final = 64
_BUS_LOSS_RECORDS: Final = 16
"""Records that may lie between the first and the last of a bus loss: other lines get between them."""
_STUCK_TIMES: Final = 3
_STUCK_SECONDS: Final = 60.0
"""The line comes every 4 s when the driver is stuck (open-gpu-kernel-modules #971); one alone says nothing."""
_SPLITS: Final = re.compile(r"\n(?=NVRM: )")


@functools.lru_cache(maxsize=512)
def parse(text: str) -> KernelEvent | None:
    """Read one kernel message, without its prefix; None for what says nothing about the hardware that we watch."""
    text = text[:_MAX_TEXT]
    if text.startswith("NVRM: Xid"):
        # What comes back None here began with a program's name: it may still be a crash line.
        return parse_xid(text) or parse_driver(text)
    if text.startswith("nvidia-nvswitch"):
        return parse_sxid(text)
    return parse_driver(text) or parse_nic(text)


class KernelLogReader:
    """Turns records into observations; its memory is bounded whatever the log holds.

    ``gpus`` maps PCI addresses to GPU UUIDs and ``nics`` to device names, in any spelling; what is not in them is
    named by its address. ``boot_time`` is seconds since the epoch at the kernel's time zero. ``last_sequence`` is
    the last record that was read before, where a reader goes on with the work of another one.
    """

    def __init__(
        self,
        *,
        boot_time: float = 0.0,
        gpus: Mapping[str, str] | None = None,
        nics: Mapping[str, str] | None = None,
        driver_branch: int | None = None,
        last_sequence: int | None = None,
        probe: str = "kernel_log",
    ) -> None:
        self.probe = probe
        self.boot_time = boot_time
        self.driver_branch = driver_branch
        self.last_sequence = last_sequence
        self._latest: tuple[str, Observation] | None = None
        """The latest Xid line and what it meant: floods are of equal lines."""
        self._learned: dict[str, str] = {}
        self._lost: tuple[str, int] | None = None
        self._stuck: collections.deque[float] = collections.deque(maxlen=_STUCK_TIMES)
        self.set_devices(gpus or {}, nics or {})

    def set_devices(self, gpus: Mapping[str, str], nics: Mapping[str, str]) -> None:
        """Say anew which device is at which address, e.g. once NVML has answered."""
        self._latest = None
        self._gpus = {normalise_pci(address): uuid for address, uuid in gpus.items()}
        self._nics = {normalise_pci(address): name for address, name in nics.items()}

    def feed(self, record: KmsgRecord) -> tuple[Observation, ...]:
        """Read the next record of ``/dev/kmsg``, of whatever facility."""
        at = self.boot_time + record.usec / 1e6
        missing = self._missing(record.sequence, at)
        if not record.from_kernel:
            return missing
        return missing + self.read(record.text, at)

    def read(self, text: str, at: float) -> tuple[Observation, ...]:
        """Read a message that is known to come from the kernel, from a source without sequence numbers."""
        if "\n" in text and not text.startswith("NVRM: Xid"):
            # Other messages may hold several of the driver's lines; an Xid line may hold a name with a newline in it.
            return tuple(seen for part in _SPLITS.split(text[:_MAX_TEXT]) for seen in self._read_line(part, at))
        return self._read_line(text, at)

    def _read_line(self, text: str, at: float) -> tuple[Observation, ...]:
        if self._lost is not None:
            address, left = self._lost
            self._lost = (address, left - 1) if left else None
        if self._latest is not None and text == self._latest[0]:
            return (msgspec.structs.replace(self._latest[1], at=at),)
        event = parse(text)
        if event is None:
            return ()
        seen = self._observe(event, text, at)
        if seen is None:
            return ()
        self._latest = (text, seen) if isinstance(event, XidLine) and len(text) <= _MAX_TEXT else None
        return (seen,)

    def _observe(self, event: KernelEvent, text: str, at: float) -> Observation | None:
        match event:
            case XidLine():
                meaning = of_xid(event, self.driver_branch)
                component = self._gpu(event.pci, meaning.link if meaning else None)
                seen = self._seen(meaning, component, text, at)
                if seen is None:
                    return None
                return msgspec.structs.replace(seen, xid=event.xid, caused_by=event.caused_by, pid=event.pid)
            case SxidLine():
                component = nvswitch(event.pci) if event.pci else HOST
                return self._seen(of_switch(event.kind), component, text, at)
            case NicLine():
                return self._seen(of_nic(event.kind), self._nic(event), text, at)
            case DriverLine():
                return self._driver(event, text, at)

    def _driver(self, line: DriverLine, text: str, at: float) -> Observation | None:
        address = line.pci
        match line.kind:
            case DriverKind.BUS_LOSS_HEAD:
                self._lost = (line.pci or "", _BUS_LOSS_RECORDS)
            case DriverKind.BUS_LOSS_TAIL:
                address = self._lost[0] if self._lost else None
                self._lost = None
            case DriverKind.GPU_NAMED if line.pci and line.uuid and len(self._learned) < _MAX_LEARNED:
                self._learned[line.pci] = line.uuid
                self._latest = None
            case DriverKind.LINK_MASK_STUCK:
                self._stuck.append(at)
                if len(self._stuck) < _STUCK_TIMES or at - self._stuck[0] > _STUCK_SECONDS:
                    return None
            case _:
                pass
        seen = self._seen(of_driver(line.kind), self._gpu(address, None), text, at)
        return seen and msgspec.structs.replace(seen, pid=line.pid, unit=line.unit)

    def _seen(self, meaning: Meaning | None, component: Component, text: str, at: float) -> Observation | None:
        if meaning is None:
            return None
        recovery = meaning.recovery
        if component == HOST and recovery is Recovery.RESET_GPU:
            recovery = Recovery.REBOOT  # which GPU to reset is not known
        return Observation(
            probe=self.probe,
            fault=meaning.fault,
            component=component,
            verdict=meaning.verdict,
            recovery=recovery,
            at=at,
            evidence=evidence(text),
            unit=meaning.unit,
        )

    def _gpu(self, address: str | None, link: int | None) -> Component:
        if not address:
            return HOST
        uuid = self._gpus.get(address) or self._learned.get(address) or f"pci-{address}"
        return gpu(uuid) if link is None else nvlink(uuid, link)

    def _nic(self, line: NicLine) -> Component:
        if line.pci:
            return nic(self._nics.get(normalise_pci(line.pci)) or f"pci-{line.pci}")
        return nic(line.device or "unknown")

    def _missing(self, sequence: int, at: float) -> tuple[Observation, ...]:
        last, self.last_sequence = self.last_sequence, sequence
        expected = 0 if last is None else last + 1
        if sequence <= expected:
            return ()
        what = f"records {expected} to {sequence - 1} of the kernel log are missing"
        seen = self._seen(by_catalogue("KernelLogGap"), HOST, what, at)
        return () if seen is None else (seen,)
