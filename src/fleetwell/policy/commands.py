"""What people say of an episode: hold, approve, release, retry. Each word is carried out once, and says who said it."""

from __future__ import annotations

from msgspec.structs import replace

from fleetwell.api.incident import AttemptResult, Command, Hold, IncidentSpec, IncidentStatus, Phase
from fleetwell.policy import story
from fleetwell.policy.beginning import never_begun
from fleetwell.policy.case import Case, Step, close_attempt, unfinished

PERSON = "Person"
RELEASED_BY_PERSON = "release@"
CLOSED_BY_PERSON = "close@"
_LIFTED = "lift"


def obey(status: IncidentStatus, case: Case) -> IncidentStatus:
    """Carry out the words that have not been carried out yet; a release outweighs all others."""
    spec = case.episode.spec
    if spec.release is not None and _new(status, "release", spec.release):
        status = _handled(status, "release", spec.release)
        return story.move(status, Phase.RELEASED, case.now, f"released {_who(spec.release)}")
    if spec.retry is not None and _new(status, "retry", spec.retry):
        status = _go_on(_handled(status, "retry", spec.retry), case, f"begun again {_who(spec.retry)}")
    if spec.approve is not None and _new(status, "approve", spec.approve):
        status = _lifted(_handled(status, "approve", spec.approve), spec, spec.approve)
        if status.phase is Phase.NEEDS_PERSON:
            status = _go_on(status, case, f"goes on, approved {_who(spec.approve)}")
        else:
            status = story.say(status, case.now, f"approved {_who(spec.approve)}")
    return _hold(status, case, spec)


def held(status: IncidentStatus, case: Case) -> Step:
    """Stay as it is until the person takes the hold away."""
    command = case.episode.spec.hold
    who = _who(command) if command is not None else "by a person"
    wanted = Hold(reason=PERSON, message=f"held {who}", since=case.now, look_again_at=case.now + story.LOOK_AGAIN * 120)
    return Step(status=story.hold(status, wanted, case.now))


def released_by_person(status: IncidentStatus) -> bool:
    """Whether a person ended the episode, whatever was found."""
    return status.phase is Phase.RELEASED and any(it.startswith(RELEASED_BY_PERSON) for it in status.handled)


def in_force(spec: IncidentSpec, status: IncidentStatus) -> Command | None:
    """Give the hold that nobody has taken away or approved away."""
    return spec.hold if spec.hold is not None and _new(status, _LIFTED, spec.hold) else None


def _lifted(status: IncidentStatus, spec: IncidentSpec, approve: Command) -> IncidentStatus:
    """An approval lifts the hold that it found, and no later one, whatever the clocks of those who wrote them say."""
    hold = in_force(spec, status)
    found = hold is not None and (status.phase is Phase.HELD or hold.at < approve.at)
    return _handled(status, _LIFTED, hold) if found and hold is not None else status


def closed_by_person(status: IncidentStatus) -> bool:
    """Whether a person closed the episode of a machine that is gone."""
    return any(it.startswith(CLOSED_BY_PERSON) for it in status.handled)


def _hold(status: IncidentStatus, case: Case, spec: IncidentSpec) -> IncidentStatus:
    hold = in_force(spec, status)
    if hold is not None and status.phase is not Phase.HELD:
        before = status.interrupted if status.phase is Phase.MAINTENANCE else status.phase
        moved = story.move(status, Phase.HELD, case.now, f"held {_who(hold)}")
        return replace(moved, interrupted=before)
    if hold is None and status.phase is Phase.HELD:
        return _resume(status, case)
    return status


def _resume(status: IncidentStatus, case: Case) -> IncidentStatus:
    """Return to the phase before the hold; deadlines that ran meanwhile are given their time back."""
    waited = case.now - status.since
    before = status.interrupted or Phase.TOLERATING
    status = story.move(status, before, case.now, "the hold was taken away")
    if status.drain is not None and before is Phase.DRAINING:
        status = replace(status, drain=replace(status.drain, deadline=status.drain.deadline + waited))
    if unfinished(status) and never_begun(case.episode, case.around, status.attempts[-1]):
        status = close_attempt(status, AttemptResult.CANCELLED, case.now, "held before it was begun")
    return replace(status, interrupted=None)


def _go_on(status: IncidentStatus, case: Case, text: str) -> IncidentStatus:
    """Forget the attempts made so far, and leave the wait for a person."""
    status = replace(status, retry_from=len(status.attempts) - (1 if unfinished(status) else 0))
    if status.phase is not Phase.NEEDS_PERSON:
        return story.say(status, case.now, text)
    if status.quarantine is None:
        return story.move(status, Phase.TOLERATING, case.now, text)
    status = replace(status, quarantine=replace(status.quarantine, seen=False, put_back=0))
    drained = status.drain is not None and status.drain.finished_at is not None
    return story.move(status, Phase.REMEDYING if drained else Phase.QUARANTINED, case.now, text)


def _key(name: str, command: Command) -> str:
    return f"{name}@{command.at.isoformat()}"


def _new(status: IncidentStatus, name: str, command: Command) -> bool:
    return _key(name, command) not in status.handled


def _handled(status: IncidentStatus, name: str, command: Command) -> IncidentStatus:
    return replace(status, handled=(*status.handled, _key(name, command)))


def _who(command: Command) -> str:
    return f"by {command.by}" + (f": {command.reason}" if command.reason else "")
