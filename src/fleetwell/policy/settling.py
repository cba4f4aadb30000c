"""What a node has to come to before it is proven: whole on its present boot, and looked at again."""

from __future__ import annotations

import datetime as dt

from fleetwell.api.fields import span
from fleetwell.api.incident import IncidentStatus
from fleetwell.health.vocabulary import Source
from fleetwell.policy.case import Case


def not_whole(status: IncidentStatus, case: Case) -> str:
    """Say what is missing; empty when nothing is."""
    return case.unsettled() or ("something could not be told yet" if case.standing(status).told else "")


def not_looked_again(status: IncidentStatus, case: Case) -> str:
    """Name what a look of an earlier boot found and no look of this one has judged yet; empty when there is nothing.

    A second opinion looks seldom: released before it has looked again, a node would be taken out for the same fault
    once more. What the kernel said of an earlier boot ends with the proof, and is not waited for.
    """
    if case.now >= look_by(status, case):
        return ""
    listed = case.node.health.findings if case.node.health is not None else ()
    looked = {(it.fault, it.component) for it in listed if it.source is Source.SNAPSHOT}
    stale = (ask.finding for ask in case.standing(status).stale)
    return ", ".join(f"{it.fault} on {it.component}" for it in stale if (it.fault, it.component) in looked)[:200]


def look_by(status: IncidentStatus, case: Case) -> dt.datetime:
    """Say until when another look is waited for: who would take it may be there no more, and the proof needs time."""
    return status.since + span(case.policy.spec.release.settle_deadline) / 2
