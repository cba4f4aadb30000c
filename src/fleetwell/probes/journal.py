"""The child that reads from the journal what the kernel's ring no longer held.

A journal may be large, slow and on a disk that hangs, so it is read here and not in the agent: what leaves this process
is bounded, and only what the kernel's readers know. journalctl is the host's own: its format is newer than any image.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from fleetwell.health.kernel_log import parse
from fleetwell.health.log_forms import Form, LogRecord, records
from fleetwell.health.log_gaps import Gap
from fleetwell.probes import report

PLACES = ("usr/bin/journalctl", "bin/journalctl")
LINES = 100_000
"""Lines that are read: a boot has some thousands."""
LINE_LIMIT = 64 * 1024
TOLD = 2000
TOLD_BYTES = 512 * 1024
"""What is told of them at most; more is a flood, whose kinds have been told by then."""
EQUALS = 8
"""How often the same text is told."""
BOOT_SLACK = 5_000_000
"""Microseconds after the boot at which a journal that holds all of it has begun."""
SLACK = 1_000_000


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal holds of the gaps."""

    absent: str = ""
    """Why there is no journal here."""
    lines: tuple[tuple[int, str], ...] = ()
    """Microseconds since the boot, and text, of what says something and lies in a gap."""
    first: int = -1
    """Microseconds of the oldest and of the newest entry of this boot; -1 where there is none."""
    last: int = -1
    cut: bool = False
    """There was more than is read."""

    def lacks(self, gaps: Iterable[Gap]) -> str:
        """Say why the gaps are not closed by this; empty when they are."""
        if self.absent:
            return self.absent
        if self.cut:
            return "the journal has more than is read of it"
        if self.first < 0:
            return "the journal has no kernel lines of this boot"
        for gap in gaps:
            if self.first > (gap.after + SLACK if gap.after else BOOT_SLACK):
                return f"the journal begins {self.first / 1e6:.0f} s after the boot"
        return ""

    def lags(self, gaps: Iterable[Gap]) -> bool:
        """Say whether the journal does not have yet what came behind a gap."""
        return any(self.last < gap.before for gap in gaps)


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    host_root: str
    boot_id: str
    gaps: tuple[Gap, ...]


def find(root: Path) -> str | None:
    """Enter the host where its root is a whole system, and give its journalctl; None where it has none."""
    found = next((place for place in PLACES if (root / place).exists()), None)
    if found is None:
        return None
    if root != Path("/") and (root / "bin/sh").exists():
        # With its libraries, its machine id and its journal's folders. A host's tree that holds single programs only
        # (the lab's) has those of this very machine.
        os.chroot(root)
        os.chdir("/")
        return f"/{found}"
    return str(root / found)


def command(program: str, boot_id: str) -> list[str]:
    """Give the command that prints the kernel's lines of one boot."""
    return [program, "-k", "-o", "json", f"--boot={boot_id.replace('-', '')}", "--no-pager", "--quiet"]


def gather(log: Iterable[LogRecord], gaps: tuple[Gap, ...]) -> Answer:
    """Take from a journal what lies in the gaps and says something."""
    told: list[tuple[int, str]] = []
    equal: Counter[str] = Counter()
    first, last, size, cut = -1, -1, 0, False
    for record in log:
        if record.uptime is None:
            continue
        usec = round(record.uptime * 1e6)
        first = usec if first < 0 else min(first, usec)
        last = max(last, usec)
        inside = record.from_kernel and any(gap.after < usec < gap.before for gap in gaps)
        if not inside or parse(record.text) is None or equal[record.text] >= EQUALS:
            continue
        size += len(record.text) + 32
        if len(told) >= TOLD or size > TOLD_BYTES:
            cut = True
            break
        equal[record.text] += 1
        told.append((usec, record.text))
    return Answer(lines=tuple(told), first=first, last=last, cut=cut)


def main() -> None:
    """Read it and print what was found."""
    asked = msgspec.convert(report.settings(), _Asked, strict=False)
    try:
        program = find(Path(asked.host_root))
    except OSError as error:
        raise SystemExit(f"{asked.host_root} cannot be entered: {error.strerror}") from error
    if program is None:
        _answer(Answer(absent="there is no journalctl on this host"))
    with subprocess.Popen(
        command(program or "", asked.boot_id), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as journalctl:
        assert journalctl.stdout is not None  # noqa: S101 (it was asked for)
        lines = _lines(journalctl.stdout)
        answer = gather(records(itertools.islice(lines, LINES), Form.JOURNAL), asked.gaps)
        if next(lines, None) is not None:
            _answer(msgspec.structs.replace(answer, cut=True))
        code = journalctl.wait()
    if code and answer.first < 0:
        raise SystemExit(f"journalctl ended with exit code {code}")
    _answer(answer)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Give the lines; of one that is too long nothing can be read, so that it is passed over in pieces."""
    while line := stream.readline(LINE_LIMIT):
        yield line


def _answer(answer: Answer) -> None:
    os.write(1, msgspec.json.encode(answer))
    os._exit(0)
