"""The phase in which rungs of the ladder are carried out, one attempt at a time.

An attempt is written down before its effect and judged by what the cluster shows: a reboot by a new boot id, a
replacement by the old UID being gone. What is only claimed is not a success, and what gives no answer ends at its
deadline and counts.
"""

from __future__ import annotations

from msgspec.structs import replace

from fleetwell.api.fields import span
from fleetwell.api.incident import Attempt, AttemptResult, IncidentStatus, Phase
from fleetwell.api.node_operation import OperationPhase
from fleetwell.api.policy import Remedy, Rung
from fleetwell.policy import story
from fleetwell.policy.beginning import asked, attempt_name, grounded, never_begun
from fleetwell.policy.case import BARS, Case, Step, close_attempt, next_rung, unfinished
from fleetwell.policy.evidence import Standing
from fleetwell.policy.instructions import RequestKind
from fleetwell.policy.others import others_at_work
from fleetwell.policy.proof import to_proving
from fleetwell.policy.quarantining import approved, interrupt
from fleetwell.policy.view import NOT_ORDERED, OperationView

_ENDED_AS = {
    OperationPhase.FAILED: AttemptResult.FAILED,
    OperationPhase.REFUSED: AttemptResult.FAILED,
    OperationPhase.UNCERTAIN: AttemptResult.UNCERTAIN,
    OperationPhase.CANCELLED: AttemptResult.CANCELLED,
}

_MAY_INTEND = (Phase.REMEDYING, Phase.TOLERATING)


def remedying(status: IncidentStatus, case: Case) -> Step:
    """Follow the attempt that is under way, else choose the next one."""
    if unfinished(status):
        return _follow(status, case)
    stands = case.standing(status)
    if not case.said(status) or (case.rebooted(status) and not stands.bad):
        return _no_ground(status, case)
    if stands.live and (other := _not_yet(status, case, stands)) is not None:
        return Step(status=other)
    rung = next_rung(status, case)
    refusal = _spent(status, case) or _nothing_to_do(status, rung)
    if refusal or rung is None:
        return Step(status=story.move(status, Phase.NEEDS_PERSON, case.now, refusal))
    return case.ask(status, RequestKind.REMEDY, rung.remedy, rung.remedy.value)


def _not_yet(status: IncidentStatus, case: Case, stands: Standing) -> IncidentStatus | None:
    """Give what comes before a remedy of the node itself; None when nothing does."""
    if status.quarantine is None:
        text = "more than a job's fault now: the node is taken out before it is repaired"
        return story.move(status, Phase.TOLERATING, case.now, text)
    work = others_at_work(case.node)
    if work:
        return interrupt(status, case, work)
    if stands.unintelligible and not approved(status):
        text = "what is found now could not be understood, which is no ground for a remedy"
        return story.move(status, Phase.NEEDS_PERSON, case.now, text)
    return None


def _no_ground(status: IncidentStatus, case: Case) -> Step:
    """Nothing is known against this boot: wait until that has lasted, then test instead of repairing."""
    if not case.node.boot_id:
        text = "the node tells no boot id, so nothing that is found can be known to be of this boot"
        return Step(status=story.move(status, Phase.NEEDS_PERSON, case.now, text))
    if case.rebooted(status) or case.standing(status).stale:
        text = "the node runs another boot than the one that was bad: it is tested, not repaired"
        return Step(status=to_proving(status, case, text))
    if case.quiet(status):
        return Step(status=to_proving(status, case, "recovered before a remedy was begun: the remedy is cancelled"))
    status = replace(status, hold=None)
    return Step(status=story.coming(status, "proof if it stays away", case.quiet_at(status) or case.now))


def _spent(status: IncidentStatus, case: Case) -> str:
    limits = case.policy.spec.limits
    mine = sum(
        1 for it in status.attempts if it.number > status.retry_from and it.result is not AttemptResult.CANCELLED
    )
    earlier = 0 if approved(status) else case.around.machine_attempts
    if mine >= limits.attempts_per_episode:
        return f"{mine} attempts in this episode, and the policy allows {limits.attempts_per_episode}"
    if mine + earlier >= limits.attempts_per_machine_week:
        return f"{mine + earlier} attempts on this machine in a week, limit {limits.attempts_per_machine_week}"
    return ""


def _nothing_to_do(status: IncidentStatus, rung: Rung | None) -> str:
    if rung is None:
        return f"nothing on the ladder is left that is as strong as {status.recovery}"
    return "the ladder says that a person is to look" if rung.remedy is Remedy.PERSON else ""


def intend(status: IncidentStatus, case: Case, remedy: Remedy) -> IncidentStatus:
    """Write an attempt down, before its effect; nothing is written when the ground for it is gone."""
    stands = case.standing(status)
    rung = next_rung(status, case)
    lead = stands.lead
    if status.phase not in _MAY_INTEND or unfinished(status) or lead is None or not case.said(status):
        return status
    if rung is None or rung.remedy is not remedy:
        return status
    number = len(status.attempts) + 1
    attempt = Attempt(
        number=number,
        remedy=remedy,
        started_at=case.now,
        deadline=case.now + span(rung.deadline),
        expected_boot_id=case.node.boot_id,
        component=lead.finding.component,
    )
    text = f"attempt {number}: {remedy.value} for {lead.finding.fault} on {lead.finding.component}"
    if status.phase is not Phase.REMEDYING:
        status = story.move(status, Phase.REMEDYING, case.now, text)
    status = replace(
        story.say(replace(status, hold=None, boot_id=case.node.boot_id), case.now, text),
        attempts=(*status.attempts, attempt),
        target_nodes=case.around.pool_nodes if remedy is Remedy.REPLACE else status.target_nodes,
    )
    return story.coming(status, f"result of {remedy.value}", attempt.deadline)


def _follow(status: IncidentStatus, case: Case) -> Step:
    status = story.lift(status, *BARS)
    attempt = status.attempts[-1]
    gone = not grounded(status, attempt, case.node, case.policy)
    if gone and never_begun(case.episode, case.around, attempt) and attempt.remedy is not Remedy.RESTART_WORKLOAD:
        text = "what it was decided for is not said any more, and it had not been begun"
        status = close_attempt(status, AttemptResult.CANCELLED, case.now, text)
    elif attempt.remedy is Remedy.REPLACE:
        status = _follow_replacement(status, case, attempt)
    elif attempt.remedy is Remedy.RESTART_WORKLOAD:
        status = _follow_restart(status, case, attempt)
    else:
        status = _follow_operation(status, case, attempt)
    if unfinished(status):
        return Step(status=story.coming(status, f"result of {attempt.remedy.value}", attempt.deadline))
    return remedying(status, case) if status.phase is Phase.REMEDYING else Step(status=status)


def _follow_operation(status: IncidentStatus, case: Case, attempt: Attempt) -> IncidentStatus:
    view = asked(case.episode, case.around, attempt)
    if view is not None and view.status.phase.ended:
        return _answered(status, case, attempt, view)
    if case.now >= attempt.deadline:
        if _booted_anew(case, attempt):
            return _to_proof(status, case, AttemptResult.UNCERTAIN, "a new boot, but no answer of the agent in time")
        where = "nobody took it" if view is None else f"it was {view.status.phase}"
        return close_attempt(status, AttemptResult.FAILED, case.now, f"no end by the deadline: {where}")
    if view is not None and view.status.phase is OperationPhase.RUNNING:
        return _running(status, attempt)
    return status


def _answered(status: IncidentStatus, case: Case, attempt: Attempt, view: OperationView) -> IncidentStatus:
    """Judge an ended operation: a reboot has succeeded only when the node runs another boot."""
    detail = view.status.message or view.status.phase.value
    if view.status.phase is not OperationPhase.SUCCEEDED:
        return close_attempt(status, _ENDED_AS[view.status.phase], case.now, detail)
    if attempt.remedy is not Remedy.REBOOT:
        return _to_proof(status, case, AttemptResult.SUCCEEDED, detail)
    if _booted_anew(case, attempt):
        return _to_proof(status, case, AttemptResult.SUCCEEDED, f"the node runs boot {case.node.boot_id}")
    if case.now >= attempt.deadline:
        return close_attempt(status, AttemptResult.FAILED, case.now, "said to be done, but the boot id is the same")
    return _running(status, attempt)


def _follow_replacement(status: IncidentStatus, case: Case, attempt: Attempt) -> IncidentStatus:
    """The node is still there; that its UID is gone is judged before any phase is asked."""
    view = case.around.replacement
    if view is not None and (view.state == NOT_ORDERED or view.name != attempt_name(case.episode.name, attempt.number)):
        view = None
    if view is not None and view.state == "Failed":
        return close_attempt(status, AttemptResult.FAILED, case.now, view.detail or "the provider says that it failed")
    if case.now >= attempt.deadline:
        said = f"; the provider says {view.state}" if view is not None else ""
        return close_attempt(status, AttemptResult.FAILED, case.now, f"the old node is still there{said}")
    return _running(status, attempt) if view is not None else status


def _follow_restart(status: IncidentStatus, case: Case, attempt: Attempt) -> IncidentStatus:
    said = [ask for ask in case.standing(status).workload if ask.finding.component == attempt.component]
    if not said:
        return _to_proof(status, case, AttemptResult.SUCCEEDED, "the fault is not said any more")
    if case.now >= attempt.deadline:
        return close_attempt(status, AttemptResult.FAILED, case.now, "the fault is still said")
    return status


def _running(status: IncidentStatus, attempt: Attempt) -> IncidentStatus:
    running = replace(attempt, result=AttemptResult.RUNNING)
    return status if running == attempt else replace(status, attempts=(*status.attempts[:-1], running))


def _booted_anew(case: Case, attempt: Attempt) -> bool:
    return bool(case.node.boot_id) and case.node.boot_id != attempt.expected_boot_id


def _to_proof(status: IncidentStatus, case: Case, result: AttemptResult, detail: str) -> IncidentStatus:
    status = close_attempt(status, result, case.now, detail)
    status = replace(status, timeline=story.reach(status.timeline, "remedied", case.now))
    return to_proving(status, case, "the node has to be whole again and pass its proof")
