"""Reads the kernel log for what it says about GPUs, NVSwitches, network adapters and the machine around them.

:func:`parse` reads one message. :class:`KernelLogReader` is fed with records and gives observations: it drops what
user space wrote, joins the records of one event, puts addresses to components, counts what says something by its rate
only, and says when records are missing. Floods go through :mod:`fleetwell.health.kernel_flood`.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from fleetwell.health.device_names import DeviceNames
from fleetwell.health.driver_line import DriverKind, DriverLine, parse_driver
from fleetwell.health.evidence import evidence
from fleetwell.health.kernel_findings import (
    Meaning,
    by_catalogue,
    of_driver,
    of_nic,
    of_switch,
    of_system,
    of_xid,
)
from fleetwell.health.kmsg_record import KmsgRecord
from fleetwell.health.line_rates import RATES, LineRates
from fleetwell.health.nic_line import NicKind, NicLine, parse_nic
from fleetwell.health.stuck_task import FRAMES, Stuck, StuckTasks
from fleetwell.health.sxid_line import SxidLine, parse_sxid
from fleetwell.health.system_line import SystemLine, parse_system
from fleetwell.health.vocabulary import HOST, Component, Observation, Recovery
from fleetwell.health.xid_line import XidLine, parse_xid

KernelEvent = XidLine | SxidLine | DriverLine | NicLine | SystemLine

_MAX_TEXT: Final = 2048
_BUS_LOSS_SECONDS: Final = 5.0
"""The three records of a bus loss come within this; lines of other processors get between them."""
_MAX_HEADS: Final = 32
_MAX_MODULES: Final = 256
_SPLITS: Final = re.compile(r"\n(?=NVRM: )")


@functools.lru_cache(maxsize=512)
def parse(text: str) -> KernelEvent | None:
    """Read one kernel message, without its prefix; None for what says nothing about the hardware that we watch."""
    text = text[:_MAX_TEXT]
    if text.startswith("NVRM: Xid"):
        # What comes back None here began with a program's name: it may still be a crash line.
        return parse_xid(text) or parse_driver(text)
    if text.startswith("nvidia-nvswitch"):
        return parse_sxid(text) or parse_driver(text)
    return parse_driver(text) or parse_system(text) or parse_nic(text)


class Reading(NamedTuple):
    """What one line said."""

    seen: Observation | None
    settled: bool
    """The same line again says the same again: it needs no second reading."""


_NOTHING: Final = Reading(None, settled=True)


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
        self.names = DeviceNames()
        self._latest: tuple[str, int, Observation] | None = None
        """The latest settled line with the names' version, and what it meant: floods are of equal lines."""
        self._rates = LineRates()
        self._heads: collections.deque[tuple[str, float]] = collections.deque(maxlen=_MAX_HEADS)
        self._stuck = StuckTasks()
        self._plugged: dict[tuple[Component, str], None] = {}
        self.set_devices(gpus or {}, nics or {})

    def set_devices(self, gpus: Mapping[str, str], nics: Mapping[str, str]) -> None:
        """Say anew which device is at which address, e.g. once NVML has answered."""
        self.names.set(gpus, nics)

    def new_boot(self) -> None:
        """Forget what lies half read: another boot's lines follow."""
        self.last_sequence = None
        self._heads.clear()
        self._stuck = StuckTasks()
        self._plugged.clear()
        self._rates = LineRates()

    def feed(self, record: KmsgRecord) -> tuple[Observation, ...]:
        """Read the next record of ``/dev/kmsg``, of whatever facility."""
        at = self.boot_time + record.usec / 1e6
        missing = self.missing(record.sequence, at)
        if not record.from_kernel:
            return missing
        return missing + self.read(record.text, at)

    def read(self, text: str, at: float) -> tuple[Observation, ...]:
        """Read a message that is known to come from the kernel, from a source without sequence numbers."""
        if "\n" in text and not text.startswith("NVRM: Xid"):
            # Other messages may hold several of the driver's lines; an Xid line may hold a name with a newline in it.
            seen = (self.read_line(part, at).seen for part in _SPLITS.split(text[:_MAX_TEXT]))
            return tuple(one for one in seen if one is not None)
        one = self.read_line(text, at).seen
        return () if one is None else (one,)

    def read_line(self, text: str, at: float) -> Reading:
        """Read one line, and say whether it needs to be read again when it comes again."""
        latest = self._latest
        if latest is not None and text == latest[0] and latest[1] == self.names.version:
            return Reading(msgspec.structs.replace(latest[2], at=at), settled=True)
        event = parse(text)
        if event is None:
            return _NOTHING
        reading = self._observe(event, text, at)
        if reading.settled and reading.seen is not None and reading.seen.fault not in RATES and len(text) <= _MAX_TEXT:
            self._latest = (text, self.names.version, reading.seen)
        return reading

    def missing(self, sequence: int, at: float) -> tuple[Observation, ...]:
        """Note the number of the next record, and say when records before it are missing."""
        last, self.last_sequence = self.last_sequence, sequence
        expected = 0 if last is None else last + 1
        if sequence <= expected:
            return ()
        return (self.note("KernelLogGap", f"records {expected} to {sequence - 1} of the kernel log are missing", at),)

    def note(self, fault: str, text: str, at: float) -> Observation:
        """Say something about the log itself."""
        return self._seen(by_catalogue(fault), HOST, text, at)

    def _observe(self, event: KernelEvent, text: str, at: float) -> Reading:
        match event:
            case XidLine():
                meaning = of_xid(event, self.driver_branch)
                component = self.names.gpu(event.pci, meaning.link)
                reading = self._judged(meaning, component, text, at)
                if reading.seen is None:
                    return reading
                seen = msgspec.structs.replace(reading.seen, xid=event.xid, caused_by=event.caused_by, pid=event.pid)
                return Reading(seen, reading.settled)
            case SxidLine():
                return self._judged(of_switch(event.kind), self.names.switch(event.pci), text, at)
            case NicLine():
                return self._nic(event, text, at)
            case SystemLine():
                component = self.names.nic(event.pci, None) if event.driver not in {"", "nvidia"} else HOST
                if event.driver == "nvidia":
                    component = self.names.gpu(event.pci)
                return self._judged(of_system(event), component, text, at, pid=event.pid, unit=event.unit)
            case DriverLine():
                return self._driver(event, text, at)

    def _nic(self, line: NicLine, text: str, at: float) -> Reading:
        component = self.names.nic(line.pci, line.device)
        module = (component, line.unit)
        match line.kind:
            case NicKind.MODULE_PLUGGED:
                if len(self._plugged) < _MAX_MODULES:
                    self._plugged[module] = None
                return Reading(None, settled=False)
            case NicKind.MODULE_UNPLUGGED:
                # A port that never had a cable says so at every boot.
                fault = "NicModuleUnplugged" if module in self._plugged else "NicLinkNoted"
                return Reading(self._seen(by_catalogue(fault), component, text, at, unit=line.unit), settled=False)
            case _:
                if line.kind is NicKind.TRANSMIT_TIMEOUT and "mlx5_core" in text:
                    self._stuck.not_sent(component, at)
                return self._judged(of_nic(line.kind), component, text, at, unit=line.unit)

    def _driver(self, line: DriverLine, text: str, at: float) -> Reading:
        address, settled = line.pci, True
        match line.kind:
            case DriverKind.BUS_LOSS_HEAD:
                self._heads.append((line.pci or "", at))
                return Reading(None, settled=False)
            case DriverKind.BUS_LOSS_TAIL | DriverKind.UNSUPPORTED_TAIL:
                address, settled = self._head(at), False
            case DriverKind.GPU_NAMED:
                if line.pci and line.uuid:
                    self.names.learn(line.pci, line.uuid)
                return Reading(None, settled=False)
            case DriverKind.OTHER_TASK_HUNG | DriverKind.OOPS:
                self._stuck.began(line, text, at)
                return Reading(None, settled=False)
            case DriverKind.NIC_TASK_HUNG:
                return self._stuck_in(self._stuck.judge(line.kind, line, text, at), at)
            case kind if kind in FRAMES:
                return self._stuck_in(self._stuck.frame(kind, text, at), at)
            case _:
                pass
        reading = self._judged(of_driver(line.kind), self.names.gpu(address), text, at, pid=line.pid, unit=line.unit)
        return Reading(reading.seen, settled and reading.settled)

    def _stuck_in(self, stuck: Stuck | None, at: float) -> Reading:
        if stuck is None:
            return Reading(None, settled=False)
        meaning = by_catalogue(stuck.fault)
        seen = self._seen(meaning, stuck.component, stuck.text, at, pid=stuck.pid, unit=stuck.unit)
        return Reading(seen, settled=False)

    def _head(self, at: float) -> str | None:
        """Find the address of a bus loss: of the oldest first record that has not had its last one yet."""
        while self._heads:
            address, told = self._heads.popleft()
            if abs(at - told) <= _BUS_LOSS_SECONDS:
                return address
        return None

    def _judged(
        self,
        meaning: Meaning | None,
        component: Component,
        text: str,
        at: float,
        *,
        pid: int | None = None,
        unit: str = "",
    ) -> Reading:
        if meaning is None:
            return _NOTHING
        if meaning.fault not in RATES:
            return Reading(self._seen(meaning, component, text, at, pid=pid, unit=unit), settled=True)
        name = self._rates.name(meaning.fault, component, unit, at)
        if not name:
            return Reading(None, settled=False)
        counted = by_catalogue(name, meaning.link)
        return Reading(self._seen(counted, component, text, at, pid=pid, unit=unit), settled=name == meaning.fault)

    def _seen(
        self, meaning: Meaning, component: Component, text: str, at: float, *, pid: int | None = None, unit: str = ""
    ) -> Observation:
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
            pid=pid,
            unit=unit or meaning.unit,
        )
