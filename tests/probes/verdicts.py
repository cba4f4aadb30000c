"""How tests read a report: through the protocol that the agent reads it with."""

from __future__ import annotations

from fleetwell.health.vocabulary import BootId, Recovery, Snapshot, Verdict
from fleetwell.probes import protocol
from fleetwell.probes.report import Report


def snapshot(report: Report) -> Snapshot:
    """Give the report as triage takes it."""
    (read,) = protocol.read(report.encode().encode(), (report.probe,))
    return read.snapshot(at=1.0, boot_id=BootId("boot"))


def worst(report: Report) -> Verdict:
    """Give the worst verdict."""
    found = [one.verdict for one in snapshot(report).observations]
    return max(found, key=lambda one: one.severity, default=Verdict.OK)


def faults(report: Report) -> set[tuple[str, str]]:
    """Give the faults with their components."""
    return {(one.fault, one.component) for one in snapshot(report).observations}


def recovery(report: Report) -> Recovery:
    """Give the strongest recovery asked for."""
    found = [one.recovery for one in snapshot(report).observations]
    return max(found, key=lambda one: one.rank, default=Recovery.NONE)
