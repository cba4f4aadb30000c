"""Cuts an nvidia-bug-report into its parts, by the lines of underscores and the titles that its script writes.

Of all that is in it four things are judged: the kernel's messages of this boot, what ``nvidia-smi --query`` said, and
the driver's version. Messages of earlier boots (``journalctl -b -1``) are counted, not judged.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final

import msgspec

HEAD: Final = "Start of NVIDIA bug report log file"
END: Final = "End of NVIDIA bug report log file"
KEPT_LINES: Final = 1_000_000
"""Lines that are kept of one part."""
_RULE: Final = re.compile(r"_{40,}\s*\Z")
_FILE: Final = re.compile(r"\*\*\* (/\S+)")
_BOOT: Final = re.compile(r"-b\s*(-?\d+)")
_SCAN: Final = "Scanning kernel log files"
_SUBTITLE: Final = re.compile(r"  (/\S+|journalctl\s.{0,200}):\s*\Z")


class Part(enum.Enum):
    """What a part of the report is."""

    KERNEL = "dmesg"
    JOURNAL = "the journal of this boot"
    KERNEL_FILES = "kernel messages of a log file, of whatever boot"
    EARLIER_BOOT = "kernel messages of an earlier boot"
    NVIDIA_SMI = "nvidia-smi --query"
    DRIVER = "/proc/driver/nvidia/version"
    OTHER = "something else"


class BugReport(msgspec.Struct):
    """The parts that are judged."""

    parts: dict[Part, list[str]]
    begins: bool = False
    """Whether it has the script's first lines: without them it is not such a report."""
    ends: bool = False
    """Whether it has the script's last line: without it the script hung, was ended, or the file was cut."""
    overflow: bool = False

    def lines(self, part: Part) -> list[str]:
        """Give the lines of a part; none where the report does not have it."""
        return self.parts.get(part, [])


def split(lines: Iterable[str]) -> BugReport:
    """Read a report, as far as it goes."""
    report = BugReport({})
    part = Part.OTHER
    titled = scanning = False
    for line in lines:
        if line.startswith("____") and _RULE.match(line):
            part, titled, scanning = Part.OTHER, False, False
            continue
        if not titled:
            if not line.strip():
                continue
            titled = True
            report.begins = report.begins or line.startswith(HEAD)
            report.ends = report.ends or line.startswith(END)
            scanning = line.startswith(_SCAN)
            part = _kind(line)
            continue
        if scanning and (subtitle := _SUBTITLE.match(line)) is not None:
            part = _scanned(subtitle[1])
            continue
        if part is Part.NVIDIA_SMI and _is_command(line):
            # Several commands stand in one part: only the first query is a look at the GPUs.
            part = _kind(line)
            continue
        if part is not Part.OTHER:
            kept = report.parts.setdefault(part, [])
            if len(kept) < KEPT_LINES:
                kept.append(line)
            else:
                report.overflow = True
    return report


def _kind(title: str) -> Part:
    title = title.strip()
    file = _FILE.match(title)
    if file is not None:
        missing = title.endswith(("does not exist", "is not readable"))
        is_version = "/proc/driver/nvidia/" in file[1] and file[1].endswith("/version")
        return Part.DRIVER if is_version and not missing else Part.OTHER
    program, _, arguments = title.rstrip(":").partition(" ")
    name = program.rpartition("/")[2]
    if name == "nvidia-smi":
        return Part.NVIDIA_SMI if arguments.strip() in {"", "-q", "--query"} else Part.OTHER
    if name == "dmesg":
        return Part.KERNEL
    if name == "journalctl" and ("-k" in arguments.split() or "_TRANSPORT=kernel" in arguments):
        return _boot(arguments)
    return Part.OTHER


def _scanned(title: str) -> Part:
    return _boot(title) if title.startswith("journalctl") else Part.KERNEL_FILES


def _boot(arguments: str) -> Part:
    boot = _BOOT.search(arguments)
    return Part.EARLIER_BOOT if boot is not None and int(boot[1]) != 0 else Part.JOURNAL


def _is_command(line: str) -> bool:
    return line.startswith("/") and "nvidia-smi" in line.partition(" ")[0]
