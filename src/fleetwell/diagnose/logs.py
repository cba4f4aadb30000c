"""Reads kernel logs: printed ones in any form, and a machine's own ring.

A log is recognised by its forms and by lines that the kernel's readers know, so that a letter or a picture is not taken
for a log without faults.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from fleetwell.diagnose import driver_version
from fleetwell.diagnose.examination import BOOT, Examination
from fleetwell.health.kernel_flood import KernelFlood
from fleetwell.health.kernel_log import KernelLogReader, parse
from fleetwell.health.log_forms import LogRecord, records
from fleetwell.health.log_stimuli import stimuli
from fleetwell.health.stimuli import Event, NewBoot

RING_LIMIT: Final = 64 << 20
"""Bytes of a machine's ring that are read: the largest that a kernel can be told to keep is 32 MiB."""
_RECORD_LIMIT: Final = 16 << 10
_MAX_TOLD: Final = 65_536


def printed(known: Examination, lines: Iterable[str], name: str, saved: float) -> Iterator[Event | NewBoot]:
    """Read a log that somebody saved, in any form.

    :param saved: seconds since the epoch of when it was saved: some forms print no year.
    """
    reader = KernelLogReader(gpus=known.gpus, nics=known.nics, driver_branch=driver_version.branch(known.driver))
    watch = _Watch(known, name, reader)
    yield from stimuli(watch.over(records(watch.given(lines), now=saved)), reader, BOOT, watch.counts)
    watch.conclude()


class _Watch:
    """Looks on while a log is read: is it one, is it whole, and what of it was in another log already."""

    def __init__(self, known: Examination, name: str, reader: KernelLogReader) -> None:
        self._known = known
        self._reader = reader
        self._name = name
        self._lines = self._recognised = 0
        self._given = self._broken = False
        self._told: set[str] = set()
        self._place: tuple[int, int] | None = None
        """Boot and number of the latest record, where the form has numbers."""

    def given(self, lines: Iterable[str]) -> Iterator[str]:
        """Look at the lines as they are given: are there any, and is each one whole that is JSON."""
        first = last = ""
        for line in lines:
            if not first:
                first = line.strip()
            if line[:1] in {"{", "}"}:
                self._broken = self._broken or (line.startswith('{"') and not line.rstrip().endswith("}"))
                last = line.strip()
            elif line:
                last = ""
            yield line
        self._given = bool(first)
        self._broken = self._broken or (first == "{" and last != "}")

    def over(self, log: Iterable[LogRecord]) -> Iterator[LogRecord]:
        """Let the records through, and look at each."""
        for record in log:
            self._see(record)
            yield record

    def counts(self, text: str) -> bool:
        """Say whether a text is no other log's."""
        if text in self._known.told:
            return False
        if len(self._told) < _MAX_TOLD:
            self._told.add(text)
        return True

    def _see(self, record: LogRecord) -> None:
        if record.text.startswith("NVRM: load") and record.from_kernel and not self._known.driver:
            self._reader.driver_branch = driver_version.branch(driver_version.find(record.text))
        if record.marked:
            self._lines += 1
            self._recognised += 1
        elif record.text.strip():
            says = record.text.startswith("NVRM: ") or parse(record.text) is not None
            if says or not record.text[:1].isspace():  # else it goes on with the last
                self._lines += 1
                self._recognised += says
        if record.sequence is not None:
            boot, last = self._place or (record.boot, record.sequence - 1)
            if self._place is None and record.sequence > 0:
                self._known.blind(f"{self._name}: what happened before its record {record.sequence}")
            if boot == record.boot and record.sequence > last + 1:
                missing = f"records {last + 1} to {record.sequence - 1} are missing"
                self._known.problem("KernelLogGap", f"{self._name}: {missing}")
            self._place = (record.boot, record.sequence)

    def conclude(self) -> None:
        """Say what the log is worth."""
        self._known.told |= self._told
        if not self._given:
            self._known.problem("ProbeSilent", f"{self._name} is empty")
        elif not self._lines or self._recognised * 2 < self._lines:
            self._known.problem("ProbeNonsense", f"{self._name} is no kernel log in any form that is known")
        else:
            self._known.judged()
            if self._broken:
                self._known.problem("ProbeNonsense", f"{self._name} has a JSON line that is not whole")


def ring(path: Path) -> list[bytes]:
    """Read the records that a kernel's ring holds now; it never waits for more.

    :raises OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISCHR(os.fstat(descriptor).st_mode):
            return _records(os.read(descriptor, RING_LIMIT))
        records: list[bytes] = []
        size = 0
        while size < RING_LIMIT:
            try:
                record = os.read(descriptor, _RECORD_LIMIT)
            except BrokenPipeError:
                continue  # overwritten before it was read: the next read goes on with the oldest that is there
            except BlockingIOError:
                break
            if not record:
                break
            records.append(record)
            size += len(record)
        return records
    finally:
        os.close(descriptor)


def recorded(known: Examination, ring_records: list[bytes], booted_at: float) -> Iterator[Event]:
    """Read a ring's records. What was overwritten before the first of them cannot be told."""
    reader = KernelLogReader(
        boot_time=booted_at, gpus=known.gpus, nics=known.nics, driver_branch=driver_version.branch(known.driver)
    )
    first = _number(ring_records[0]) if ring_records else 0
    if first > 0:
        known.blind(f"what happened early in this boot: {first} records of the kernel log are overwritten")
        reader.last_sequence = first - 1
    yield Event(KernelFlood(reader).read(ring_records))


def _records(text: bytes) -> list[bytes]:
    """Cut a file in the form of the ring into records with their properties."""
    records: list[bytes] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(b" ") and records:
            records[-1] += line
        else:
            records.append(line)
    return records


def _number(record: bytes) -> int:
    parts = record.split(b",", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0
