"""DCGM's own diagnostic as a part of the proof, where ``dcgmi`` is installed: one voice more, and the worse counts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from fleetwell.probes import proof_crew
from fleetwell.probes.dcgm import TOOL, discovered
from fleetwell.probes.dcgm_reading import Asked, read
from fleetwell.probes.driver import program
from fleetwell.probes.proof_rows import Row, observed
from fleetwell.probes.proof_thresholds import Diagnostic

CHECK = "dcgm"
DISCOVERY_SECONDS = 20.0


def diagnostic(host_root: Path, choices: Sequence[Diagnostic], within: float) -> list[Row]:
    """Run ``dcgmi diag`` at the highest number that the time allows.

    :param choices: what the proof's level may run, by rising number; with less time than the first needs none is begun.
    :param within: seconds that are left.
    """
    tool = program(host_root, TOOL)
    if tool is None:
        return [Row(CHECK, "host", "OK", f"blind: no {TOOL} below {host_root}, so its diagnostic was not run")]
    fitting = [one for one in choices if one.seconds <= within]
    if not fitting:
        least = choices[0]
        said = f"diagnostic {least.number} needs {least.seconds:.0f} s and {within:.0f} s are left: it was not begun"
        return [Row(CHECK, "host", "UNKNOWN", said)]
    number = fitting[-1].number
    end = time.monotonic() + within
    listed = proof_crew.run({TOOL: ([str(tool), "discovery", "-l"], os.environ)}, min(DISCOVERY_SECONDS, within))[TOOL]
    argv = [str(tool), "diag", "-r", str(number), "-j"]
    ended = proof_crew.run({TOOL: (argv, os.environ)}, end - time.monotonic(), polite=True)[TOOL]
    if ended.code is None or ended.code < 0:
        return [Row(CHECK, "host", "UNKNOWN", f"{TOOL} diag -r {number}: {ended.trouble}")]
    uuids = discovered(listed.output.decode(errors="replace"))
    text = ended.output.decode(errors="replace") + ended.errors
    return judge(text, Asked(code=ended.code, level=number, uuids=uuids))


def judge(text: str, asked: Asked) -> list[Row]:
    """Read what the diagnostic printed. What it says of settings is told and holds nothing."""
    seen = json.loads(read(text, asked).encode())
    rows = [observed(CHECK, one) for one in seen["observations"]]
    rows += [Row(CHECK, "host", "OK", f"blind: {said}") for said in seen["blind"]]
    if not seen["observations"] and seen["covered"]:
        gpus = len([one for one in seen["covered"] if one != "host"])
        rows.insert(0, Row(CHECK, "host", "OK", f"diagnostic {asked.level} passed on {gpus} GPUs"))
    return rows or [Row(CHECK, "host", "UNKNOWN", f"diagnostic {asked.level} said nothing of any GPU")]
