"""Brings the kernel log to triage, and remembers on disk up to where it was judged.

The ring still holds old lines when the agent starts again. What they said was judged once; read as new they would undo
what a remedy and a proof have ended since. What the ring no longer holds is asked of the journal; until that has
answered the log counts as not read, and what it does not have is said to be missing.

Lines are placed in time by the kernel's clock and a boot time that only ever moves forward. Where the wall clock is set
back, lines of the same boot would else seem older than what was judged, and be passed over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.pods import Owners
from fleetwell.health.kernel_findings import by_catalogue
from fleetwell.health.kernel_flood import KernelFlood
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.log_gaps import Gap, gaps_in, joined, place_of, unjudged
from fleetwell.health.stimuli import Event, ProbeFailed
from fleetwell.health.vocabulary import HOST, FaultName, Observation, Snapshot
from fleetwell.probes.kernel_log import KernelLogTail

if TYPE_CHECKING:
    from fleetwell.probes.journal import Answer

log = structlog.get_logger(__name__)

PROBE = "kernel_log"
WRITE_GAP = 1.0
"""Seconds between two writes of the position: a flood must not become a flood of disk writes."""
CLOCK_STEP = 1.0
"""Seconds by which the wall clock has to jump to be followed: less is how a clock is disciplined."""
JOURNAL_PAUSE = 2.0
"""Seconds in which the journal takes what the ring had before it."""
JOURNAL_TRIES = 3
_GAP = FaultName("KernelLogGap")


class _Position(msgspec.Struct, frozen=True):
    boot_id: str
    judged_until: float
    booted_at: float = 0.0
    """The boot time by which that was counted; it is another one after the wall clock was set."""


class KernelEvents:
    """The kernel log as a source.

    :param path: ``dev/kmsg`` below the host's root: its processes and its journal are looked for below the same root.
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
        self._host_root = path.parent.parent
        self._reader = KernelLogReader(boot_time=boot.booted_at, driver_branch=boot.driver_branch)
        self._flood = KernelFlood(self._reader)
        self._owners = Owners(self._host_root / "proc", lambda: self._reader.boot_time, monotonic=monotonic)
        self._position = position
        self._assessment = assessment
        self._on_finding = on_finding
        self._wall = wall
        self._monotonic = monotonic
        self._clock = wall() - monotonic()
        """What the wall clock had beyond the monotonic one when it was furthest ahead."""
        self._judged_until = 0.0
        self._judged_usec = 0.0
        """Up to where an earlier agent judged, by the kernel's clock."""
        self._written_until = 0.0
        self._written_at = 0.0
        self._latest: bytes = b""
        self.missing = 0
        """How many records the ring lost before they were read; the journal may have had them."""
        self._gaps: list[Gap] = []
        self._asking: asyncio.Task[None] | None = None

    @property
    def dropped(self) -> int:
        """How many records did not have the kernel's form."""
        return self._flood.dropped

    def judged_until(self) -> float:
        """Tell up to when events of this boot were judged before; 0 where nothing is known."""
        try:
            known = msgspec.json.decode(self._position.read_bytes(), type=_Position)
        except (OSError, msgspec.DecodeError):
            known = None
        if known is not None and known.boot_id == self._assessment.boot.boot_id:
            moved = self._reader.boot_time - known.booted_at if known.booted_at else 0.0
            self._judged_until = self._written_until = known.judged_until + moved
            self._judged_usec = max(0.0, self._judged_until - self._reader.boot_time) * 1e6
        return self._judged_until

    def name_devices(self) -> None:
        """Tell the reader which GPU is at which address, as far as is known."""
        self._reader.set_devices(*self._devices())

    def report(self) -> None:
        """Tell triage whether the log can be read, have gaps filled, and write the position down."""
        self._follow_clock()
        now = self._wall()
        if self.tail.failure:
            fault = FaultName("ProbeSilent")
            self._assessment.take(ProbeFailed(probe=PROBE, fault=fault, at=now, evidence=self.tail.failure))
        elif self.tail.caught_up.is_set() and not self._missing:
            boot_id = self._assessment.boot.boot_id
            self._assessment.take(Snapshot(probe=PROBE, at=now, boot_id=boot_id, covered=(HOST,)))
        elif self.tail.caught_up.is_set() and self._asking is None:
            self._asking = asyncio.create_task(self._ask_journal(), name="journal")
        self._write()

    async def close(self) -> None:
        """Stop following, and asking the journal."""
        self.tail.close()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    @property
    def _missing(self) -> bool:
        """Whether records are missing of which the journal has not been asked."""
        return bool(self._gaps) or self._asking is not None

    def _records(self, records: list[bytes]) -> None:
        dropped, latest = self.dropped, self._latest
        seen = self._flood.read(records)
        self._latest = records[-1]
        if any(one.fault == _GAP for one in seen):
            gaps = gaps_in(records, place_of(latest))
            lost = unjudged(gaps, self._judged_usec)
            self.missing += sum(gap.missing for gap in lost)
            self._gaps = joined([*self._gaps, *lost])
            seen = tuple(one for one in seen if one.fault != _GAP)
        if self.dropped > dropped:
            seen = (*seen, self._unreadable(self.dropped - dropped))
        if not seen:
            return
        self._judge(seen, "kernel log")
        self._judged_until = max(self._judged_until, *(one.at for one in seen))
        if self._monotonic() - self._written_at >= WRITE_GAP:
            self._write()

    def _judge(self, seen: tuple[Observation, ...], source: str) -> None:
        change = self._assessment.take(Event(observations=seen, owners=self._owners.of(seen)))
        if change:
            log.info(source, faults=sorted({one.fault for one in seen}), evidence=seen[-1].evidence)
            self._on_finding()

    async def _ask_journal(self) -> None:
        """Have what is missing read from the journal, and say what is not there either."""
        from fleetwell.agent.journal import Journal  # noqa: PLC0415 (costs memory; most logs have no gap)

        gaps, self._gaps = self._gaps, []
        records = sum(gap.missing for gap in gaps)
        log.warning("records of the kernel log are missing; the journal is asked", records=records, gaps=len(gaps))
        journal = Journal(self._host_root, self._assessment.boot.boot_id)
        try:
            answer = await journal.read(gaps)
            for _ in range(JOURNAL_TRIES - 1):
                if answer.lacks(gaps) or not answer.lags(gaps):
                    break
                await asyncio.sleep(JOURNAL_PAUSE)
                answer = await journal.read(gaps)
            self._take_journal(answer, gaps)
        finally:
            journal.child.close()
            self._asking = None
        self.report()

    def _take_journal(self, answer: Answer, gaps: list[Gap]) -> None:
        reader = KernelLogReader(boot_time=self._reader.boot_time, driver_branch=self._reader.driver_branch)
        reader.set_devices(*self._devices())
        seen = [one for usec, text in answer.lines for one in reader.read(text, reader.boot_time + usec / 1e6)]
        why = answer.lacks(gaps) or ("the journal lags behind the ring" if answer.lags(gaps) else "")
        records = sum(gap.missing for gap in gaps)
        if why:  # It is missing from now on, however long ago it was written.
            text = f"{records} records of the kernel log are missing; {why}"
            seen.append(reader.note("KernelLogGap", text, self._wall()))
        log.info("the journal was asked for missing records", records=records, lines=len(answer.lines), lacks=why)
        if seen:
            self._judge(tuple(seen), "journal")
        self._judged_until = max(self._judged_until, reader.boot_time + gaps[-1].before / 1e6)

    def _devices(self) -> tuple[dict[str, str], dict[str, str]]:
        memory = self._assessment.memory
        gpus = {pci: uuid for uuid, pci in memory.gpus.items()}
        return gpus, {pci: name for name, pci in (memory.nics | memory.infiniband).items()}

    def _follow_clock(self) -> None:
        """Count the kernel's time from a later moment where the wall clock was set forward, and never from an earlier.

        Without it lines of now would seem old after the clock of a fresh machine was set, and age out at once.
        """
        step = self._wall() - self._monotonic() - self._clock
        if step < CLOCK_STEP or not self._reader.boot_time:
            return
        log.warning("the clock was set forward", seconds=round(step, 3))
        self._clock += step
        self._reader.boot_time += step
        if self._judged_until:
            self._judged_until += step
            self._written_until = 0.0

    def _unreadable(self, times: int) -> Observation:
        meaning = by_catalogue("KernelLogUnreadable")
        return Observation(
            probe=PROBE,
            fault=meaning.fault,
            component=HOST,
            verdict=meaning.verdict,
            recovery=meaning.recovery,
            at=self._wall(),
            evidence=f"{self.dropped} records without the kernel's form",
            times=times,
        )

    def _write(self) -> None:
        if self._judged_until <= self._written_until or self._missing:
            return  # An agent that begins anew while the journal is asked has to ask it again.
        self._written_at = self._monotonic()
        position = _Position(self._assessment.boot.boot_id, self._judged_until, self._reader.boot_time)
        encoded = msgspec.json.encode(position)
        new = self._position.with_suffix(".new")
        try:
            new.write_bytes(encoded)
            new.replace(self._position)
        except OSError as error:
            log.warning("the kernel log's position cannot be written", path=str(self._position), why=str(error))
            return
        self._written_until = self._judged_until
