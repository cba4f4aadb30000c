"""How an episode's status is written: phases, holds, what comes next, and the decisions in words.

A status changes only when something happened: two looks at an unchanged node give equal statuses, so that a healthy
pass of the controller writes nothing.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from msgspec.structs import replace

from fleetwell.api.incident import Hold, IncidentStatus, Next, Phase, Said, Timeline

KEPT_DECISIONS: Final = 20
LOOK_AGAIN: Final = dt.timedelta(seconds=30)
"""How soon a held request is looked at again where nothing else wakes it."""

_REACHED: Final = {
    Phase.QUARANTINED: "quarantined",
    Phase.SUSPECTED: "quarantined",
}


def say(status: IncidentStatus, now: dt.datetime, text: str) -> IncidentStatus:
    """Add a decision in words; saying the same thing twice in a row adds nothing."""
    if status.decisions and status.decisions[-1].text == text:
        return status
    return replace(status, decisions=(*status.decisions, Said(at=now, text=text))[-KEPT_DECISIONS:])


def move(status: IncidentStatus, phase: Phase, now: dt.datetime, text: str) -> IncidentStatus:
    """Enter a phase: its clock starts, and holds and announcements of the phase before are gone."""
    stages = [_REACHED[phase]] if phase in _REACHED else []
    if phase.ended:
        stages.append("ended")
    timeline = status.timeline
    for stage in stages:
        timeline = reach(timeline, stage, now)
    said = say(status, now, text)
    return replace(said, phase=phase, since=now, hold=None, next=None, timeline=timeline)


def reach(timeline: Timeline, stage: str, now: dt.datetime) -> Timeline:
    """Note when a stage was first reached."""
    return timeline if getattr(timeline, stage) is not None else replace(timeline, **{stage: now})


def hold(status: IncidentStatus, wanted: Hold, now: dt.datetime) -> IncidentStatus:
    """Note a hold. The same hold seen again keeps its beginning, and is said only once."""
    before = status.hold
    if before is not None and before.reason == wanted.reason:
        again = before.look_again_at if before.look_again_at > now else wanted.look_again_at
        kept = replace(wanted, since=before.since, look_again_at=again)
        return status if kept == before else replace(status, hold=kept)
    return replace(say(status, now, f"held ({wanted.reason}): {wanted.message}"), hold=wanted)


def lift(status: IncidentStatus, *reasons: str) -> IncidentStatus:
    """Take a hold away if it is one of these."""
    return replace(status, hold=None) if status.hold is not None and status.hold.reason in reasons else status


def coming(status: IncidentStatus, step: str, at: dt.datetime) -> IncidentStatus:
    """Announce what comes next and when."""
    wanted = Next(step=step, at=at)
    return status if status.next == wanted else replace(status, next=wanted)


def bad_for(status: IncidentStatus, now: dt.datetime) -> float:
    """Seconds for which the node has been bad in this episode, up to now, added up over its breaks."""
    running = (now - status.counted_at).total_seconds() if status.counted_at is not None else 0.0
    return status.bad_seconds + max(0.0, running)


def summarise(status: IncidentStatus, what: str) -> IncidentStatus:
    """Write the line that ``kubectl get`` shows: what is wrong and what is waited for."""
    if status.hold is not None:
        line = f"{what}; held: {status.hold.message}"
    elif status.phase.ended or status.phase is Phase.NEEDS_PERSON or status.next is None:
        line = f"{what}; {status.decisions[-1].text}" if status.decisions else what
    else:
        line = f"{what}; next: {status.next.step}"
    return status if status.summary == line[:240] else replace(status, summary=line[:240])
