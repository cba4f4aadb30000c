"""The phase before a node works again: it must be whole on its present boot, and pass an active test.

A proof that could not be had is not a pass: it holds the release, is tried again until its deadline, and then counts as
a remedy that did not help.
"""

from __future__ import annotations

import datetime as dt

from msgspec.structs import replace

from fleetwell.api.fields import span
from fleetwell.api.incident import AttemptResult, IncidentFinding, IncidentStatus, Phase, ProofRun
from fleetwell.api.node_operation import NodeOperationStatus, OperationPhase
from fleetwell.api.policy import ProofLevel
from fleetwell.health.vocabulary import HOST, Recovery, Verdict
from fleetwell.policy import story
from fleetwell.policy.case import Case, Step
from fleetwell.policy.evidence import PROOF_FAILED, PROOF_UNFINISHED, with_proof, without_proofs
from fleetwell.policy.settling import look_by, not_looked_again, not_whole

_TRIES = 5
"""A proof that cannot be had is tried about this often within its deadline."""
_KEPT = 20
"""Proofs that an episode remembers: a new node that cannot be proven is tried for as long as it stands there, and an
object of the API server has at most 1.5 MiB."""


def to_proving(status: IncidentStatus, case: Case, text: str) -> IncidentStatus:
    """Begin the way back to work; what earlier proofs said rests until the new one has spoken."""
    moved = story.move(status, Phase.PROVING, case.now, text)
    boot = case.node.boot_id or status.boot_id
    return replace(moved, findings=without_proofs(status.findings), boot_id=boot, interrupted=None)


def proof_name(episode: str, number: int) -> str:
    """Name the operation of a proof: done twice, it is the same object."""
    return f"{episode}-p{number}"


def proving(status: IncidentStatus, case: Case) -> Step:
    """Wait until the node is whole, have it proven, and give it back to work."""
    if status.quarantine is None and not case.admission():
        return Step(status=_never_taken(status, case))
    if case.standing(status).bad:
        return Step(status=_back(status, case, "a fault was found while the node was being proven"))
    release = case.policy.spec.release
    waiting = not_whole(status, case)
    settle_by = status.since + span(release.settle_deadline)
    if waiting and not _running(status):
        if case.now >= settle_by:
            return Step(
                status=_failed(status, case, PROOF_UNFINISHED, f"not whole {release.settle_deadline}: {waiting}")
            )
        return Step(status=story.coming(status, f"proof, once whole ({waiting})", settle_by))
    unseen = not_looked_again(status, case)
    if unseen and not _this_round(status):
        step = f"proof, once there is another look ({unseen})"
        return Step(status=story.coming(status, step, look_by(status, case)))
    return _prove(status, case)


def _prove(status: IncidentStatus, case: Case) -> Step:
    if case.policy.spec.proof.level is ProofLevel.NONE:
        return Step(status=_released(status, case, "released: the policy asks for no proof"))
    if not _this_round(status):
        deadline = case.now + span(case.policy.spec.proof.deadline)
        return Step(status=_begin(status, case, deadline, f"proving ({case.policy.spec.proof.level})"))
    if _running(status):
        status = _judged(status, case)
    run = status.proofs[-1]
    if run.passed is not None:
        if run.passed:
            return Step(status=_released(status, case, f"released: proof {run.number} passed"))
        return Step(status=_failed(status, case, PROOF_FAILED, run.detail))
    if case.now >= run.deadline:
        return Step(status=_failed(status, case, PROOF_UNFINISHED, f"no proof in time: {run.detail or 'no answer'}"))
    return Step(status=_wait_or_try_again(status, case, run))


def _wait_or_try_again(status: IncidentStatus, case: Case, run: ProofRun) -> IncidentStatus:
    if _running(status):
        return story.coming(status, "result of the proof", run.deadline)
    again = run.started_at + (run.deadline - _this_round(status)[0].started_at) / _TRIES
    if case.now >= again:
        return _begin(status, case, run.deadline, f"proving again: {run.detail}")
    return story.coming(status, f"proof again ({run.detail})", again)


def _this_round(status: IncidentStatus) -> tuple[ProofRun, ...]:
    return tuple(run for run in status.proofs if run.started_at >= status.since)


def _running(status: IncidentStatus) -> bool:
    runs = _this_round(status)
    return bool(runs) and runs[-1].passed is None and not runs[-1].detail


def _begin(status: IncidentStatus, case: Case, deadline: dt.datetime, text: str) -> IncidentStatus:
    number = status.proofs[-1].number + 1 if status.proofs else 1
    run = ProofRun(number=number, started_at=case.now, deadline=deadline, expected_boot_id=case.node.boot_id)
    said = story.say(replace(status, proofs=(*status.proofs, run)[-_KEPT:]), case.now, text)
    return story.coming(said, "result of the proof", deadline)


def _judged(status: IncidentStatus, case: Case) -> IncidentStatus:
    """Take the operation's answer into the run. Only a check that says BAD fails a proof; silence never passes it."""
    run = status.proofs[-1]
    if run.expected_boot_id != case.node.boot_id:
        return _unanswered(status, "the node restarted during the proof")
    view = case.around.operation(proof_name(case.episode.name, run.number), f"{case.episode.uid}-p{run.number}")
    if view is None or not view.status.phase.ended:
        return status
    bad = [it for it in view.status.results if it.verdict == Verdict.BAD]
    if bad:
        return _with_run(status, replace(run, passed=False, detail=f"{bad[0].check}: {bad[0].detail}"[:200]))
    missing = _missing(view.status)
    if missing:
        return _unanswered(status, missing)
    return _with_run(status, replace(run, passed=True, detail=view.status.message[:200]))


def _missing(answer: NodeOperationStatus) -> str:
    unknown = [it for it in answer.results if it.verdict not in {Verdict.OK, Verdict.CONFIG, Verdict.BAD}]
    if unknown:
        return f"{unknown[0].check}: {unknown[0].detail or 'could not tell'}"[:200]
    if answer.phase is not OperationPhase.SUCCEEDED:
        return (answer.message or f"the proof ended as {answer.phase}")[:200]
    return ""


def _unanswered(status: IncidentStatus, why: str) -> IncidentStatus:
    return _with_run(status, replace(status.proofs[-1], detail=why))


def _with_run(status: IncidentStatus, run: ProofRun) -> IncidentStatus:
    return replace(status, proofs=(*status.proofs[:-1], run))


def _released(status: IncidentStatus, case: Case, text: str) -> IncidentStatus:
    proved = replace(status, timeline=story.reach(status.timeline, "proved", case.now))
    return story.move(proved, Phase.RELEASED, case.now, text)


def _never_taken(status: IncidentStatus, case: Case) -> IncidentStatus:
    """End an episode that never kept work from the node."""
    if case.standing(status).now:
        return _back(status, case, "the fault is still there")
    return story.move(status, Phase.CLEARED, case.now, "nothing is found any more, and the node was never taken out")


def _back(status: IncidentStatus, case: Case, text: str) -> IncidentStatus:
    """Return to the repair of the same episode: to the remedy where the node is already drained."""
    if status.quarantine is None:
        return story.move(status, Phase.TOLERATING, case.now, text)
    drained = bool(status.attempts) or (status.drain is not None and status.drain.finished_at is not None)
    return story.move(status, Phase.REMEDYING if drained else Phase.QUARANTINED, case.now, text)


def _failed(status: IncidentStatus, case: Case, fault: str, detail: str) -> IncidentStatus:
    """Count the last remedy as failed and go on to the next rung."""
    last = status.attempts[-1] if status.attempts else None
    if last is not None and last.result is AttemptResult.SUCCEEDED:
        failed = replace(last, result=AttemptResult.FAILED, detail=detail)
        status = replace(status, attempts=(*status.attempts[:-1], failed))
    if status.quarantine is None and not _this_round(status):
        text = f"the new node cannot be admitted: {detail}"
        return story.move(status, Phase.NEEDS_PERSON, case.now, text)
    recovery = status.recovery if status.recovery.rank > Recovery.RESTART_WORKLOAD.rank else Recovery.REBOOT
    finding = IncidentFinding(
        fault=fault,
        component=HOST,
        verdict=Verdict.BAD,
        recovery=recovery,
        evidence=detail,
        boot_id=case.node.boot_id,
        first_seen=case.now,
    )
    status = replace(
        status, findings=with_proof(status.findings, finding), recovery=recovery, boot_id=case.node.boot_id
    )
    if status.quarantine is None and fault == PROOF_UNFINISHED:
        text = f"the new node cannot be admitted: {detail}"
        return story.move(status, Phase.NEEDS_PERSON, case.now, text)
    return _back(status, case, f"not released: {detail}")
