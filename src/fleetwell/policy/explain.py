"""Why a node is where it is, in plain lines: evidence, rule, clock, budget and pace, what is next, how to stop it."""

from __future__ import annotations

import datetime as dt

from fleetwell.api.fields import seconds, words
from fleetwell.api.incident import IncidentStatus, Phase
from fleetwell.api.policy import Rule
from fleetwell.policy.budget import Fleet, budget_of, pace_of
from fleetwell.policy.evidence import Standing, of_this_boot, standing
from fleetwell.policy.story import bad_for
from fleetwell.policy.view import Episode, NodeView, Policy, Surroundings

_DECISIONS = 5


def explain(episode: Episode, around: Surroundings, fleet: Fleet, now: dt.datetime) -> list[str]:
    """Say all of it, one thing a line."""
    status = episode.status
    open_for = words(now - status.timeline.opened)
    lines = [f"{episode.spec.node_name}: {status.phase} for {words(now - status.since)}"]
    lines += [f"incident {episode.name} ({episode.spec.kind}), begun {open_for} ago"]
    lines += [f"evidence: {line}" for line in _evidence(status, around.node)]
    if around.policy is not None and around.node is not None:
        stands = standing(status.findings, around.node, around.policy.spec)
        lines += _rule(stands, status, around.policy, now)
    lines += [f"attempt {it.number}: {it.remedy} {it.result} {it.detail}".rstrip() for it in status.attempts]
    lines += [f"proof {it.number}: {_passed(it.passed)} {it.detail}".rstrip() for it in status.proofs]
    if not status.phase.ended:
        lines += [f"budget of pool {status.pool}: {budget_of(status.pool, fleet).words()}"]
        lines += [f"pace: {pace_of(status.pool, fleet, now).words()}"]
    lines += _next(episode, around, now)
    lines += [f"decided {words(now - it.at)} ago: {it.text}" for it in status.decisions[-_DECISIONS:]]
    return lines


def _evidence(status: IncidentStatus, node: NodeView | None) -> list[str]:
    if not status.findings:
        return ["nothing is found"]
    lines = []
    for it in sorted(status.findings, key=lambda one: (not one.active, -one.recovery.rank)):
        when = "now" if it.active else "no longer said"
        if it.active and node is not None and not of_this_boot(it, node):
            when = "of an earlier boot: no ground for an action"
        said = f": {it.evidence}" if it.evidence else ""
        lines.append(f"{it.fault} on {it.component} is {it.verdict}, asks for {it.recovery} ({when}){said}")
    return lines


def _rule(stands: Standing, status: IncidentStatus, policy: Policy, now: dt.datetime) -> list[str]:
    lead = stands.lead
    mode = f"policy {policy.name} ({policy.spec.mode})"
    if lead is None:
        return [f"rule: none of {mode} asks for anything about this"]
    bad = words(bad_for(status, now))
    return [
        f"rule: {lead.rule.name} of {mode}: {_ladder(lead.rule)}",
        f"clock: bad for {bad} in this episode, {words(seconds(lead.rule.tolerate))} tolerated",
    ]


def _ladder(rule: Rule) -> str:
    if not rule.quarantine:
        return "shown only"
    rungs = ", then ".join(f"{rung.remedy} up to {rung.attempts}x" for rung in rule.ladder)
    return f"quarantine, drain after {rule.drain.after} within {rule.drain.deadline}, {rungs}"


def _next(episode: Episode, around: Surroundings, now: dt.datetime) -> list[str]:
    status, lines = episode.status, []
    if status.hold is not None:
        lines.append(f"held ({status.hold.reason}) for {words(now - status.hold.since)}: {status.hold.message}")
    if status.next is not None:
        wait = status.next.at - now
        when = f"in {words(wait)}" if wait > dt.timedelta() else "as soon as it may"
        lines.append(f"next: {status.next.step}, {when}")
    if status.phase is Phase.NEEDS_PERSON:
        lines.append("next: nothing until a person approves, retries or releases, or the machine is found whole")
    if around.policy_problem:
        lines.append(f"problem: {around.policy_problem}")
    if not status.phase.ended:
        lines.append(
            f"to stop it: set spec.hold on incident {episode.name}; to give the node back now: spec.release; "
            "taking our taint away by hand is respected too"
        )
    return lines


def _passed(passed: bool | None) -> str:
    return "no answer yet" if passed is None else "passed" if passed else "failed"
