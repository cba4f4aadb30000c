"""How an episode ends from outside, and what waits for a person: nodes that are gone, marks that somebody took away."""

from __future__ import annotations

import datetime as dt

from msgspec.structs import replace

from fleetwell.api.fields import span
from fleetwell.api.incident import AttemptResult, IncidentStatus, Phase, QuarantineMark
from fleetwell.api.policy import Remedy, Replacement
from fleetwell.policy import story
from fleetwell.policy.case import Case, Step, machine_writer, ordered_away
from fleetwell.policy.commands import CLOSED_BY_PERSON
from fleetwell.policy.evidence import PROOF_UNFINISHED
from fleetwell.policy.proof import to_proving
from fleetwell.policy.view import Episode, Surroundings

PUT_BACK_AT_MOST = 1
"""How often a mark that a program took away is put back before a person is asked: two controllers must not fight."""


def gone(episode: Episode, around: Surroundings, now: dt.datetime) -> Step:
    """The UID is gone: by our order the pool's capacity has to come back in time, otherwise the episode is over."""
    status = episode.status
    if not ordered_away(status):
        return Step(status=story.move(status, Phase.GONE, now, "the node is gone, and not by our order"))
    if not _noticed(status):
        status = _notice(status, now)
    have = f"the pool has {around.pool_nodes} of {status.target_nodes} nodes"
    if around.pool_nodes >= status.target_nodes:
        return Step(status=story.move(status, Phase.REPLACED, now, f"replaced: {have} again"))
    if status.phase is Phase.NEEDS_PERSON:
        return Step(status=_closed(status, episode, now))
    rule = around.policy.spec.replacement if around.policy is not None else Replacement()
    deadline = status.since + span(rule.capacity_deadline)
    if now >= deadline:
        return Step(status=story.move(status, Phase.NEEDS_PERSON, now, f"the old machine is gone, and {have}"))
    return Step(status=story.coming(status, f"{status.target_nodes} nodes in the pool again", deadline))


def _closed(status: IncidentStatus, episode: Episode, now: dt.datetime) -> IncidentStatus:
    """A person's release or approval after the question was asked closes the episode of a machine that is gone."""
    word = episode.spec.release or episode.spec.approve
    if word is None or word.at <= status.since:
        return status
    closed = replace(status, handled=(*status.handled, f"{CLOSED_BY_PERSON}{word.at.isoformat()}"))
    return story.move(closed, Phase.GONE, now, f"closed by {word.by}: the machine is gone")


def _noticed(status: IncidentStatus) -> bool:
    last = status.attempts[-1]
    return last.remedy is Remedy.REPLACE and last.result is AttemptResult.SUCCEEDED


def _notice(status: IncidentStatus, now: dt.datetime) -> IncidentStatus:
    """Take it down that the old machine is gone: the order's last attempt has succeeded, whatever was said of it."""
    index = max(at for at, it in enumerate(status.attempts) if it.remedy is Remedy.REPLACE)
    ended = replace(
        status.attempts[index], result=AttemptResult.SUCCEEDED, ended_at=now, detail="the old node's UID is gone"
    )
    attempts = (*status.attempts[:index], *status.attempts[index + 1 :], ended)
    status = replace(status, attempts=attempts, timeline=story.reach(status.timeline, "remedied", now))
    return story.move(status, Phase.REMEDYING, now, "the old machine is gone; waiting for the pool's capacity")


def watch_mark(status: IncidentStatus, case: Case) -> IncidentStatus:
    """See whether our mark is still there. A person who takes it away has the last word; a program does not.

    Where nothing shows a program it was a person: ``kubectl taint`` leaves no trace when it takes the last taint.
    """
    mark = status.quarantine
    if mark is None or status.phase.ended:
        return status
    if case.marked(status):
        return status if mark.seen else replace(status, quarantine=replace(mark, seen=True))
    if not mark.seen:
        return status
    writer = case.node.taint_removed_by
    if not machine_writer(writer):
        who = writer or "nothing shows a program"
        text = f"our quarantine was taken away by hand ({who}): the node is left alone until its evidence changes"
        return story.move(status, Phase.VETOED, case.now, text)
    return _put_back(status, case, mark)


def _put_back(status: IncidentStatus, case: Case, mark: QuarantineMark) -> IncidentStatus:
    who = case.node.taint_removed_by
    status = replace(status, quarantine=replace(mark, seen=False, put_back=mark.put_back + 1))
    if mark.put_back < PUT_BACK_AT_MOST:
        return story.say(status, case.now, f"our mark was taken away by {who}, and is put back")
    if status.phase is Phase.NEEDS_PERSON:
        return story.say(status, case.now, f"our mark was taken away again by {who}")
    text = f"our mark was taken away again by {who}, and is not put back: two programs must not fight over a node"
    return story.move(status, Phase.NEEDS_PERSON, case.now, text)


def needs_person(status: IncidentStatus, case: Case) -> Step:
    """Wait for a person; a machine that was mended meanwhile is tested and goes back to work by itself."""
    stands = case.standing(status)
    mended = case.rebooted(status) and not stands.bad
    if (mended or (not stands.live and case.quiet(status))) and not case.unsettled():
        return Step(status=to_proving(status, case, "nothing is found any more: the node is tested"))
    if status.quarantine is None and not case.admission() and not stands.now and case.quiet(status):
        return Step(status=story.move(status, Phase.CLEARED, case.now, "nothing is found any more"))
    if status.quarantine is None and case.admission():
        return Step(status=_admit_later(status, case))
    return Step(status=status)


def _admit_later(status: IncidentStatus, case: Case) -> IncidentStatus:
    """A new node whose proof could not be had is tried again now and then: it costs nothing, and it may be needed."""
    if any(ask.finding.fault != PROOF_UNFINISHED for ask in case.standing(status).told):
        return status
    again = status.since + span(case.policy.spec.release.settle_deadline)
    if case.now < again:
        return story.coming(status, "another try to have it proven", again)
    return to_proving(status, case, "trying again to have the new node proven")
