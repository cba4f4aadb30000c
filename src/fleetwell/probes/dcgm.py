"""The child that asks DCGM for its health, where DCGM is installed.

DCGM may block for minutes in an error storm, call a GPU healthy that the driver wants reset, and never forget an Xid.
So it is one voice among several: what it finds counts, its silence leaves the answer open, and its "healthy" clears
nothing that another probe found. Diagnostics are not run here: they take the GPUs from whoever uses them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fleetwell.probes import report
from fleetwell.probes.dcgm_reading import PROBE, Asked, read
from fleetwell.probes.driver import command
from fleetwell.probes.report import Report
from fleetwell.probes.tool import NoAnswerError, ask

TOOL = "dcgmi"
INNER_SHARE = 0.8
"""Part of the supervisor's deadline after which the tool is given up here, so that the reason can still be told."""
_DEVICE = re.compile(r"\|\s*(?P<number>\d+)\s*\|[^|]*\|")
_UUID = re.compile(r"Device UUID:\s*(?P<uuid>GPU-[0-9a-fA-F-]{36})")


def main() -> None:
    """Look once."""
    given = report.settings()
    deadline = given.get("deadline")
    try:
        seen = look(
            Path(str(given.get("host_root", "/"))),
            deadline=float(deadline) if isinstance(deadline, int | float) else 30.0,
        )
    except NoAnswerError as error:
        sys.exit(f"{error}")
    report.leave(seen)


def look(host_root: Path, *, deadline: float = 30.0) -> Report:
    """Ask DCGM's health once.

    :param deadline: the supervisor's, in seconds.
    :raises NoAnswerError: it hung, or said nothing that could be judged: the supervisor then says so of the probe.
    """
    tool = command(host_root, TOOL)
    if tool is None:
        seen = Report(PROBE)
        seen.absent(f"no {TOOL} below {host_root}")
        return seen
    listed, _ = ask(tool, ["discovery", "-l"], deadline * INNER_SHARE / 4)
    output, code = ask(tool, ["health", "-c", "-j"], deadline * INNER_SHARE * 3 / 4)
    seen = read(output, Asked(code=code, uuids=discovered(listed)))
    if {fault for fault, _ in seen.noted} == {"ProbeNonsense"}:
        raise NoAnswerError(f"{TOOL} gave no answer that makes sense (exit code {code}): {output.strip()[:200]}")
    return seen


def discovered(text: str) -> dict[str, str]:
    """Read ``dcgmi discovery -l``: DCGM's GPU number → UUID. Empty where it cannot be read: names are then numbers."""
    found: dict[str, str] = {}
    number = ""
    for line in text.splitlines():
        device, uuid = _DEVICE.match(line.strip()), _UUID.search(line)
        number = device["number"] if device else number
        if uuid and number:
            found.setdefault(number, uuid["uuid"])
    return found


if __name__ == "__main__":
    main()
