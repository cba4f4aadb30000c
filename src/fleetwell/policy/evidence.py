"""What speaks against a node now, and what of it is evidence of the boot that it is running.

Two faults are not the agent's to tell: that it is silent itself, and that a proof failed or could not be had. They are
made here, of the same shape as its findings.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from fleetwell.api.fields import seconds
from fleetwell.api.incident import IncidentFinding
from fleetwell.api.policy import PolicySpec, Rule
from fleetwell.health.catalogue import fault_or_unknown
from fleetwell.health.vocabulary import HOST, Recovery, Verdict, strongest
from fleetwell.policy.matching import asks_for_action, intelligible, rule_for
from fleetwell.policy.view import NodeView

AGENT_SILENT = "AgentSilent"
PROOF_FAILED = "GpuProofFailed"
PROOF_UNFINISHED = "ProofUnfinished"
_OF_A_PROOF = (PROOF_FAILED, PROOF_UNFINISHED)

KEPT = 32
"""Findings that an episode remembers; active ones before past ones."""

_UNNAMED = Rule(name="proof", faults=_OF_A_PROOF)
"""What follows a failed proof on a node with no other fault, under a policy that does not say."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A finding that asks for something, and the rule that says what is done about it."""

    finding: IncidentFinding
    rule: Rule

    @property
    def strength(self) -> tuple[int, int, float]:
        """Order of asks: the strongest recovery leads, then the worse verdict, then the shorter patience."""
        return (self.finding.recovery.rank, self.finding.verdict.severity, -seconds(self.rule.tolerate))


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How the evidence of an episode stands on the node's present boot."""

    live: tuple[Ask, ...]
    """What is said against the node now, of this boot: the only ground for an action on it."""
    workload: tuple[Ask, ...]
    """What is said of a job now: it is answered by restarting the job, and never touches the node."""
    stale: tuple[Ask, ...]
    """What is still listed but was seen on an earlier boot, and that nobody has yet looked at again."""
    past: tuple[Ask, ...]
    """What the episode remembers and nobody says any more."""

    @property
    def now(self) -> tuple[Ask, ...]:
        """All that is said of this boot."""
        return (*self.live, *self.workload)

    @property
    def lead(self) -> Ask | None:
        """The ask that decides about the ladder."""
        for asks in (self.live, self.workload, self.stale, self.past):
            if asks:
                return max(asks, key=lambda ask: ask.strength)
        return None

    @property
    def told(self) -> tuple[Ask, ...]:
        """What is said of this boot and is not a mere suspicion, which a proof can take away."""
        return tuple(ask for ask in self.live if not ask.finding.suspected)

    @property
    def bad(self) -> bool:
        """Whether a fault was really seen on this boot, rather than suspected or something that could not be told."""
        return any(ask.finding.verdict is not Verdict.UNKNOWN for ask in self.told)

    @property
    def tolerated_for(self) -> float:
        """Seconds of bad time after which the least tolerated of what is said now is acted upon."""
        return min((seconds(ask.rule.tolerate) for ask in self.live or self.workload), default=0.0)

    @property
    def unintelligible(self) -> bool:
        """Whether all that is said could not be understood, which is no ground for a remedy."""
        return bool(self.live) and not any(intelligible(ask.finding.fault) for ask in self.live)

    @property
    def suspicion(self) -> bool:
        """Whether nothing but repetition speaks against the hardware."""
        return bool(self.live) and not self.told

    @property
    def recovery(self) -> Recovery:
        """The strongest recovery that is asked for and not resolved."""
        return strongest([ask.finding.recovery for ask in (*self.now, *self.stale)])


def silent(node: NodeView) -> bool:
    """Whether the node once had an agent and hears nothing of it now."""
    return node.agent_known and not node.agent_fresh


def said_now(node: NodeView, now: dt.datetime | None = None) -> tuple[IncidentFinding, ...]:
    """Everything that speaks against a node now; the time is the controller's, and the evidence the first line seen."""
    found = [
        IncidentFinding(
            fault=finding.fault,
            component=finding.component,
            verdict=finding.verdict,
            recovery=finding.recovery,
            evidence=finding.evidence[0] if finding.evidence else "",
            boot_id=finding.boot_id or (node.health.boot_id if node.health else ""),
            first_seen=now,
            suspected=finding.suspected,
        )
        for finding in (node.health.findings if node.health and node.health.node_uid == node.uid else ())
    ]
    if silent(node):
        known = fault_or_unknown(AGENT_SILENT)
        found.append(
            IncidentFinding(
                fault=AGENT_SILENT,
                component=HOST,
                verdict=Verdict.UNKNOWN,
                recovery=known.recovery,
                evidence="the agent's Lease is not renewed",
                boot_id=node.boot_id,
                first_seen=now,
            )
        )
    return tuple(found)


def merged(known: Iterable[IncidentFinding], said: Iterable[IncidentFinding]) -> tuple[IncidentFinding, ...]:
    """Join what an episode remembers with what is said now; first sights stay, and nothing is forgotten too soon."""
    table = {
        (one.fault, one.component): one if _of_a_proof(one) else msgspec.structs.replace(one, active=False)
        for one in known
    }
    for one in said:
        before = table.get((one.fault, one.component))
        table[one.fault, one.component] = (
            one if before is None else msgspec.structs.replace(one, first_seen=before.first_seen)
        )
    if len(table) <= KEPT:
        return tuple(table.values())
    ranked = sorted(table.values(), key=lambda one: (not one.active, -one.recovery.rank))
    return tuple(ranked[:KEPT])


def without_proofs(findings: Iterable[IncidentFinding]) -> tuple[IncidentFinding, ...]:
    """Let the outcome of earlier proofs rest, because a new one is to be made."""
    return tuple(msgspec.structs.replace(one, active=one.active and not _of_a_proof(one)) for one in findings)


def with_proof(findings: Iterable[IncidentFinding], failed: IncidentFinding) -> tuple[IncidentFinding, ...]:
    """Remember a failed or unfinished proof as a finding, until the next proof."""
    return (*(one for one in findings if not _of_a_proof(one)), failed)


def standing(findings: Iterable[IncidentFinding], node: NodeView, policy: PolicySpec) -> Standing:
    """Sort an episode's findings by what they are evidence of; those that ask for nothing are left out."""
    asks = [ask for one in findings if (ask := _ask(one, policy)) is not None]
    active = [ask for ask in asks if ask.finding.active]
    now = [ask for ask in active if of_this_boot(ask.finding, node)]
    return Standing(
        live=tuple(ask for ask in now if not _of_a_job(ask.finding)),
        workload=tuple(ask for ask in now if _of_a_job(ask.finding)),
        stale=tuple(ask for ask in active if not of_this_boot(ask.finding, node) and not _of_a_job(ask.finding)),
        past=tuple(ask for ask in asks if not ask.finding.active),
    )


def of_this_boot(finding: IncidentFinding, node: NodeView) -> bool:
    """Whether a finding was made on the boot that the node runs now."""
    return bool(node.boot_id) and finding.boot_id == node.boot_id


def _ask(finding: IncidentFinding, policy: PolicySpec) -> Ask | None:
    rule = rule_for(policy, finding.fault)
    if _of_a_proof(finding):
        return Ask(finding=finding, rule=rule or _UNNAMED)
    wanted = asks_for_action(finding.verdict, finding.recovery, rule, suspected=finding.suspected)
    return Ask(finding=finding, rule=rule) if rule is not None and wanted else None


def _of_a_proof(finding: IncidentFinding) -> bool:
    return finding.component == HOST and finding.fault in _OF_A_PROOF


def _of_a_job(finding: IncidentFinding) -> bool:
    return finding.recovery is Recovery.RESTART_WORKLOAD and not finding.suspected
