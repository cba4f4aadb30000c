"""Reads a saved log for triage, at a cost that a flood cannot raise: the agent's own way, behind the forms of logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from fleetwell.health.kernel_flood import PIECE, KernelFlood
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.line_marks import may_matter
from fleetwell.health.log_forms import LogRecord
from fleetwell.health.stimuli import Event, NewBoot
from fleetwell.health.vocabulary import BootId, Observation

_READ_WHOLE: Final = 16_384
"""Lines that are read one by one, whatever they say: a person can wait for what the agent may not."""
_TOGETHER: Final = 2.0
"""Seconds within which lines are taken together: what belongs to one event must not be torn apart."""
_BATCH: Final = 512


def stimuli(  # noqa: C901 (one loop over a flood: calls would cost more than they tell)
    lines: Iterable[LogRecord],
    reader: KernelLogReader,
    boot_id: BootId,
    counts: Callable[[str], bool] = lambda _: True,
) -> Iterator[Event | NewBoot]:
    """Read a log for triage: what happened, and where another boot begins.

    Boots are named ``<boot_id>`` for the first one and ``<boot_id>+n`` for the n-th after it: findings of a boot that
    is not the last one are of the past. Times go forward only: a clock that is set back does not tear a burst apart.
    Lines without any time are taken as of one time.

    :param counts: says of a text that may say something whether it counts: another log may have had it.
    """
    boot, latest, since = 0, 0.0, 0.0
    sequence = 0 if reader.last_sequence is None else reader.last_sequence + 1
    flood = KernelFlood(reader, burst=_READ_WHOLE)
    raws: list[bytes] = []
    text, body, says = "", b"", False
    batch: list[Observation] = []
    for record in lines:
        if record.boot > boot:
            batch.extend(flood.read(raws))
            if batch:
                yield Event(tuple(batch))
            raws, batch = [], []
            boot, latest, since, sequence = record.boot, 0.0, 0.0, 0
            reader.new_boot()
            flood = KernelFlood(reader, burst=_READ_WHOLE)
            yield NewBoot(BootId(f"{boot_id}+{boot}"))
        if not record.from_kernel or record.boot < boot:
            continue
        if record.text != text:
            text = record.text
            body = _body(text)
            says = may_matter(body) and counts(text)
        if not says:
            continue
        at = record.at
        if at is None:
            at = latest if record.uptime is None else reader.boot_time + record.uptime
        latest = max(latest, at)
        if latest - since > _TOGETHER or len(raws) >= PIECE:
            batch.extend(flood.read(raws))
            raws, since = [], latest
            if len(batch) >= _BATCH:
                yield Event(tuple(batch))
                batch = []
        raws.append(b"3,%d,%d,-;%b" % (sequence, max(0.0, latest - reader.boot_time) * 1e6, body))
        sequence += 1
    batch.extend(flood.read(raws))
    if batch:
        yield Event(tuple(batch))


def _body(text: str) -> bytes:
    """Give a message as the kernel's device gives it."""
    body = text.encode("utf-8", "replace")
    if b"\\" in body:
        body = body.replace(b"\\", b"\\x5c")
    return body.replace(b"\n", b"\\x0a") if b"\n" in body else body
