"""Brings the kernel log to triage, and remembers on disk up to where it was judged.

The ring still holds old lines when the agent starts again. What they said was judged once; read as new they would undo
what a remedy and a proof have ended since.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from fleetwell.agent.assessment import Assessment
from fleetwell.health.kernel_findings import by_catalogue
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.kmsg_record import parse_record
from fleetwell.health.stimuli import Event, ProbeFailed
from fleetwell.health.vocabulary import HOST, FaultName, Observation, Snapshot
from fleetwell.probes.kernel_log import KernelLogTail

log = structlog.get_logger(__name__)

PROBE = "kernel_log"
WRITE_GAP = 1.0
"""Seconds between two writes of the position: a flood must not become a flood of disk writes."""


class _Position(msgspec.Struct, frozen=True):
    boot_id: str
    judged_until: float


class KernelEvents:
    """The kernel log as a source.

    :param on_finding: called when a line changed a finding, so that the probes look now.
    """

    def __init__(
        self,
        path: Path,
        position: Path,
        assessment: Assessment,
        *,
        on_finding: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        boot = assessment.boot
        self.tail = KernelLogTail(path, self._records)
        self.dropped = 0
        """Records without the kernel's form."""
        self._reader = KernelLogReader(boot_time=boot.booted_at, driver_branch=boot.driver_branch)
        self._position = position
        self._assessment = assessment
        self._on_finding = on_finding
        self._wall = wall
        self._monotonic = monotonic
        self._judged_until = 0.0
        self._written_until = 0.0
        self._written_at = 0.0

    def judged_until(self) -> float:
        """Tell up to when events of this boot were judged before; 0 where nothing is known."""
        try:
            known = msgspec.json.decode(self._position.read_bytes(), type=_Position)
        except (OSError, msgspec.DecodeError):
            known = None
        if known is not None and known.boot_id == self._assessment.boot.boot_id:
            self._judged_until = self._written_until = known.judged_until
        return self._judged_until

    def name_devices(self) -> None:
        """Tell the reader which GPU is at which address, as far as is known."""
        gpus = {pci: uuid for uuid, pci in self._assessment.memory.gpus.items()}
        self._reader.set_devices(gpus, {})

    def report(self) -> None:
        """Tell triage whether the log can be read, and write the position down."""
        now = self._wall()
        if self.tail.failure:
            fault = FaultName("ProbeSilent")
            self._assessment.take(ProbeFailed(probe=PROBE, fault=fault, at=now, evidence=self.tail.failure))
        elif self.tail.caught_up.is_set():
            boot_id = self._assessment.boot.boot_id
            self._assessment.take(Snapshot(probe=PROBE, at=now, boot_id=boot_id, covered=(HOST,)))
        self._write()

    def _records(self, records: list[bytes]) -> None:
        seen: list[Observation] = []
        for raw in records:
            record = parse_record(raw)
            if record is None:
                self.dropped += 1
                seen.append(self._unreadable())
            else:
                seen.extend(self._reader.feed(record))
        if not seen:
            return
        change = self._assessment.take(Event(observations=tuple(seen)))
        self._judged_until = max(self._judged_until, *(one.at for one in seen))
        if self._monotonic() - self._written_at >= WRITE_GAP:
            self._write()
        if change:
            log.info("kernel log", faults=sorted({one.fault for one in seen}), evidence=seen[-1].evidence)
            self._on_finding()

    def _unreadable(self) -> Observation:
        meaning = by_catalogue("KernelLogUnreadable")
        return Observation(
            probe=PROBE,
            fault=meaning.fault,
            component=HOST,
            verdict=meaning.verdict,
            recovery=meaning.recovery,
            at=self._wall(),
            evidence=f"{self.dropped} records without the kernel's form",
        )

    def _write(self) -> None:
        if self._judged_until <= self._written_until:
            return
        self._written_at = self._monotonic()
        encoded = msgspec.json.encode(_Position(self._assessment.boot.boot_id, self._judged_until))
        new = self._position.with_suffix(".new")
        try:
            new.write_bytes(encoded)
            new.replace(self._position)
        except OSError as error:
            log.warning("the kernel log's position cannot be written", path=str(self._position), why=str(error))
            return
        self._written_until = self._judged_until
