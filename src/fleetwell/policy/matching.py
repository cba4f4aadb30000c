"""Which policy governs a node, which rule applies to a fault, and which pool a node counts in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from fleetwell.api.policy import PolicySpec, Remedy, Rule, Selector
from fleetwell.health.catalogue import fault_or_unknown
from fleetwell.health.vocabulary import Recovery, Verdict
from fleetwell.policy.view import NodeView, Policy


def selects(selector: Selector, node: NodeView) -> bool:
    """Whether a selector takes in a node: all labels match and, where types are given, the instance type is one."""
    if any(node.labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return not selector.instance_types or node.instance_type in selector.instance_types


def governing(node: NodeView, policies: Iterable[Policy]) -> tuple[Policy | None, str]:
    """Give the policy that governs a node, and what is wrong with that, else an empty text.

    On a tie the first by name is given beside the problem: it keeps what the node already has and starts nothing,
    whereas no policy at all would release the node.
    """
    chosen = [policy for policy in policies if selects(policy.spec.selector, node)]
    if not chosen:
        return None, ""
    highest = max(policy.spec.priority for policy in chosen)
    first, *ties = sorted((policy for policy in chosen if policy.spec.priority == highest), key=lambda it: it.name)
    if not ties:
        return first, ""
    names = " and ".join(policy.name for policy in (first, *ties))
    return first, (
        f"policies {names} both select node {node.name} with priority {highest}; nothing new is started on it until "
        "one of them has a higher priority"
    )


def rule_for(policy: PolicySpec, fault: str) -> Rule | None:
    """Give the first rule that names a fault."""
    return next((rule for rule in policy.rules if any(fnmatchcase(fault, glob) for glob in rule.faults)), None)


def pool_of(labels: Mapping[str, str], policy: PolicySpec) -> str:
    """Name a node's pool: the value of the first pool label that it wears, else ``default``."""
    return next((labels[label] for label in policy.pool_labels if labels.get(label)), "default")


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Give the worst of several verdicts; ``OK`` for none."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.OK)


def intelligible(fault: str) -> bool:
    """Whether the fault could be understood; one that the catalogue does not know could not."""
    return not fault_or_unknown(fault).unintelligible


def asks_for_action(verdict: Verdict, recovery: Recovery, rule: Rule | None, *, suspected: bool) -> bool:
    """Whether a finding asks for anything under its rule, or is only shown.

    What jobs do to themselves never touches a node: such a finding counts only where the rule's ladder says that the
    workload is to be restarted, or where repetition made it a suspicion against the hardware.
    """
    if rule is None or verdict is Verdict.OK:
        return False
    if suspected:
        return rule.quarantine
    if recovery is Recovery.RESTART_WORKLOAD:
        return any(rung.remedy is Remedy.RESTART_WORKLOAD for rung in rule.ladder)
    return rule.quarantine and verdict in {Verdict.BAD, Verdict.UNKNOWN} and recovery is not Recovery.NONE
