"""What holds for any input to the readers of the kernel log: asked by hypothesis in tests and by atheris for longer."""

from __future__ import annotations

import re

from fleetwell.health.catalogue import XIDS, fault_or_unknown
from fleetwell.health.evidence import LIMIT
from fleetwell.health.kernel_flood import KernelFlood
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.log_forms import Form, records
from fleetwell.health.stimuli import Event
from fleetwell.health.triage import findings, initial, step
from fleetwell.health.triage_state import TriageSettings
from fleetwell.health.vocabulary import BootId, Observation, Recovery, Verdict

SETTINGS = TriageSettings(max_findings=16)
CLAIM = "NVRM: Xid (PCI:0000:b3:00): "
_NUMBER = re.compile(r"(\d{1,6})(?:,|\s*\Z)")
_PROGRAM = re.compile(r"NVRM: Xid.{0,6}?(?:\[\d{1,10}\]|\(\d{1,10}\)|/\d{1,10}|: [a-z]| invoked )", re.DOTALL)


def hold_for_observation(seen: Observation) -> None:
    """Check what every observation promises."""
    assert len(seen.evidence) <= LIMIT
    assert seen.evidence.isprintable()
    assert len(seen.component) < 128
    assert seen.times >= 1
    entry = fault_or_unknown(seen.fault)
    if entry.unintelligible:
        assert seen.verdict is Verdict.UNKNOWN
    if not entry.touches_node:
        assert seen.recovery.rank <= Recovery.RESTART_WORKLOAD.rank


def hold_for_claim(garbage: str) -> None:
    """Check that what claims to be an Xid and cannot be understood is never better than UNKNOWN."""
    text = CLAIM + garbage
    seen = KernelLogReader().read(text, 1.0)
    number = _NUMBER.match(garbage)
    if number is not None and int(number[1]) in XIDS:
        return
    if number is None and _PROGRAM.match(text):
        return  # the kernel's line about a program of that name
    assert seen, text
    assert all(one.verdict is Verdict.UNKNOWN and one.recovery is Recovery.SUPPORT for one in seen), text


def hold_for_raw(raws: list[bytes]) -> None:
    """Check that raw records neither stop the reader nor triage, and that user space is never heard."""
    flood = KernelFlood(KernelLogReader(gpus={"0000:b3:00": "GPU-b3"}))
    seen = flood.read(raws)
    for one in seen:
        hold_for_observation(one)
    state, _ = step(initial(BootId("b"), SETTINGS), Event(seen), SETTINGS)
    assert len(findings(state)) <= SETTINGS.max_findings
    outside = [b"1" + raw for raw in raws]  # a facility that the kernel itself never has
    heard = KernelFlood(KernelLogReader()).read(outside)
    assert {one.fault for one in heard} <= {"KernelLogGap"}


def hold_for_text(text: bytes) -> None:
    """Check that a saved log in any form neither stops the reader nor gives unbounded records."""
    for form in Form:
        reader = KernelLogReader()
        for record in records(text.split(b"\n"), form, now=1.7e9):
            assert len(record.text) <= 4096
            if record.from_kernel:
                for one in reader.read(record.text, record.at or 0.0):
                    hold_for_observation(one)
