"""One decision's ground: an episode's surroundings at one moment, and what several phases ask of them."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from fleetwell.api.fields import span
from fleetwell.api.incident import AttemptResult, Hold, IncidentKind, IncidentStatus
from fleetwell.api.policy import Mode, QuarantineBy, Remedy, Rung
from fleetwell.policy import story
from fleetwell.policy.evidence import Ask, Standing, silent, standing
from fleetwell.policy.instructions import Request, RequestKind
from fleetwell.policy.view import Episode, NodeView, Policy, Surroundings

DRY_RUN = "DryRun"
PAUSED = "Paused"
PRECONDITION = "Precondition"
BARS: Final = (DRY_RUN, PAUSED, PRECONDITION)
"""Reasons for which nothing new is started, whatever the budget says."""

OPEN_RESULTS: Final = (AttemptResult.INTENDED, AttemptResult.RUNNING)

_MACHINE_WRITER: Final = re.compile(
    r"^(kubelet|kube-|fleetwell|karpenter|cluster-autoscaler|cloud-|node-)|(controller|manager|operator|autoscaler)$"
)
"""Field managers that are programs. A person's are those of kubectl, an editor or a dashboard."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a decision came to: the status to write, the leave to ask for, and when to look again at the latest."""

    status: IncidentStatus
    request: Request | None = None
    wake: dt.datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """An open episode whose node is there and governed by a policy."""

    episode: Episode
    node: NodeView
    policy: Policy
    around: Surroundings
    now: dt.datetime

    def standing(self, status: IncidentStatus) -> Standing:
        """How the evidence stands on the node's present boot."""
        return standing(status.findings, self.node, self.policy.spec)

    def said(self, status: IncidentStatus) -> tuple[Ask, ...]:
        """What is said now and this episode answers; what a job does to itself says nothing about a node taken out."""
        stands = self.standing(status)
        return stands.now if status.quarantine is None else stands.live

    def rebooted(self, status: IncidentStatus) -> bool:
        """Whether the node runs another boot than the one that the evidence is of."""
        return bool(status.boot_id and self.node.boot_id) and status.boot_id != self.node.boot_id

    def quiet_at(self, status: IncidentStatus) -> dt.datetime | None:
        """When the node will have been free of faults for long enough; None while it is not free of them."""
        return None if status.quiet_since is None else status.quiet_since + span(self.policy.spec.release.quiet)

    def quiet(self, status: IncidentStatus) -> bool:
        """Whether the node has been free of faults for long enough."""
        at = self.quiet_at(status)
        return at is not None and self.now >= at

    def admission(self) -> bool:
        """Whether the node was never admitted to work."""
        return self.episode.spec.kind is IncidentKind.ADMISSION and self.node.unproven

    def bar(self, doing: str) -> Hold | None:
        """Why nothing new may be started, whatever the budget says."""
        where = f"policy {self.policy.name}"
        if self.around.policy_problem:
            return self.holding(PRECONDITION, f"would {doing}, but {self.around.policy_problem}")
        if self.policy.spec.mode is Mode.DRY_RUN:
            return self.holding(DRY_RUN, f"would {doing}; {where} is in DryRun and touches no node")
        if self.policy.spec.mode is Mode.PAUSED:
            return self.holding(PAUSED, f"would {doing}; {where} is Paused and starts nothing new")
        return None

    def holding(self, reason: str, message: str) -> Hold:
        """Make a hold that begins now."""
        return Hold(reason=reason, message=message, since=self.now, look_again_at=self.now + story.LOOK_AGAIN)

    def ask(self, status: IncidentStatus, kind: RequestKind, remedy: Remedy | None, doing: str) -> Step:
        """Ask for leave, unless nothing new may be started now."""
        bar = self.bar(doing)
        if bar is not None:
            return Step(status=story.hold(status, bar, self.now))
        known = status.next is not None and status.next.step == doing
        status = story.lift(status, *BARS)
        status = status if known else story.coming(status, doing, self.now)
        request = Request(
            kind=kind,
            episode=self.episode.name,
            node=self.node.name,
            pool=status.pool or self.node.pool,
            since=status.since,
            remedy=remedy,
        )
        return Step(status=status, request=request, wake=self.now + story.LOOK_AGAIN)

    def marked(self, status: IncidentStatus) -> bool:
        """Whether the node wears the mark that this episode put on it."""
        if status.quarantine is None:
            return False
        return self.node.our_taint if QuarantineBy(status.quarantine.by) is QuarantineBy.TAINT else self.node.cordoned

    def unsettled(self) -> str:
        """Why the node is not yet whole on its present boot; empty when it is."""
        health = self.node.health
        if not self.node.ready:
            return "the kubelet does not say Ready"
        if health is None or silent(self.node) or not self.node.agent_fresh:
            return "its agent is silent"
        if health.node_uid != self.node.uid or not self.node.boot_id or health.boot_id != self.node.boot_id:
            return "its agent has not reported from this boot"
        return "" if health.settled else "its agent has not yet had a full look that found nothing"


def machine_writer(field_manager: str) -> bool:
    """Whether a program rather than a person wrote."""
    return _MACHINE_WRITER.search(field_manager.lower()) is not None


def next_rung(status: IncidentStatus, case: Case) -> Rung | None:
    """Give the weakest rung that is strong enough for what is asked and has attempts left."""
    stands = case.standing(status)
    lead = stands.lead
    if lead is None:
        return None
    counted = [it for it in status.attempts if it.number > status.retry_from]
    for rung in lead.rule.ladder:
        if not stands.live and rung.remedy is not Remedy.RESTART_WORKLOAD:
            break  # a machine is never taken out, nor repaired, for what a job did
        tried = sum(1 for it in counted if it.remedy is rung.remedy and it.result is not AttemptResult.CANCELLED)
        if rung.remedy.recovery.rank >= status.recovery.rank and tried < rung.attempts and _possible(rung, case):
            return rung
    return None


def unfinished(status: IncidentStatus) -> bool:
    """Whether an attempt is under way."""
    return bool(status.attempts) and status.attempts[-1].result in OPEN_RESULTS


def ordered_away(status: IncidentStatus) -> bool:
    """Whether the machine's replacement was ordered by this episode."""
    return any(it.remedy is Remedy.REPLACE and it.result is not AttemptResult.CANCELLED for it in status.attempts)


def close_attempt(status: IncidentStatus, result: AttemptResult, now: dt.datetime, detail: str) -> IncidentStatus:
    """End the attempt that is under way, in words too."""
    last = replace(status.attempts[-1], result=result, ended_at=now, detail=detail)
    text = f"attempt {last.number} ({last.remedy}) {result.value.lower()}: {detail}"
    return story.say(replace(status, attempts=(*status.attempts[:-1], last)), now, text)


def _possible(rung: Rung, case: Case) -> bool:
    replacement = case.policy.spec.replacement
    return rung.remedy is not Remedy.REPLACE or (replacement.provider != "none" and replacement.template is not None)
