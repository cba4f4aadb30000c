"""Whether the DaemonSets of a pool can live under our taint. Pure.

A DaemonSet pod without a toleration is not made again under a custom NoSchedule taint: a node that is reset in
quarantine would come back without its device plugin, and its proof could not pass (piraeus-operator #1009).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetwell.control.effects.drain import MARK
from fleetwell.control.effects.evictable import tolerates
from fleetwell.kube.objects import DaemonSet, Node

ADVICE = "key: fleetwell.io/quarantine, operator: Exists, effect: NoSchedule"


@dataclass(frozen=True)
class Intolerant:
    """A DaemonSet with pods on a pool's nodes that does not tolerate our taint."""

    daemonset: str
    pool: str


def intolerant(daemonsets: Iterable[DaemonSet], pools: Mapping[str, list[Node]]) -> list[Intolerant]:
    """Find the DaemonSets that run on nodes of these pools and would not come back under our taint."""
    found = []
    for daemonset in daemonsets:
        if tolerates(daemonset.spec.template.spec.tolerations, MARK):
            continue
        name = f"{daemonset.metadata.namespace}/{daemonset.metadata.name}"
        found += [
            Intolerant(name, pool) for pool, nodes in pools.items() if any(runs_on(daemonset, node) for node in nodes)
        ]
    return sorted(found, key=lambda one: (one.pool, one.daemonset))


def runs_on(daemonset: DaemonSet, node: Node) -> bool:
    """Whether the DaemonSet has a pod on the node, by the rules that its controller follows."""
    pod = daemonset.spec.template.spec
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    if not _wanted_by_affinity(pod.affinity or {}, node):
        return False
    barring = (taint for taint in node.spec.taints if taint.effect in {"NoSchedule", "NoExecute"})
    # Its controller adds tolerations for a node's own troubles (node.kubernetes.io/…) to every pod.
    return all(
        taint.key == MARK.key or taint.key.startswith("node.kubernetes.io/") or tolerates(pod.tolerations, taint)
        for taint in barring
    )


def problem(found: Iterable[Intolerant]) -> str:
    """Say which DaemonSets stand in the way and what to set."""
    by_pool: dict[str, list[str]] = {}
    for one in found:
        by_pool.setdefault(one.pool, []).append(one.daemonset)
    return "; ".join(
        f"pool {pool} is quarantined by cordon, because {', '.join(names)} would not come back under our taint: give "
        f"the pods a toleration ({ADVICE})"
        for pool, names in by_pool.items()
    )


def _wanted_by_affinity(affinity: dict[str, Any], node: Node) -> bool:
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms")
    if not terms:
        return True
    fields = {"metadata.name": node.metadata.name}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_holds(expression, node.metadata.labels) for expression in term.get("matchExpressions") or ())
        and all(_holds(expression, fields) for expression in term.get("matchFields") or ())
        for term in terms
    )


def _holds(expression: dict[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(str(expression.get("key")))
    values = [str(given) for given in expression.get("values") or ()]
    bound = _number(values[0]) if values else 0
    outcomes = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
        "Gt": value is not None and _number(value) > bound,
        "Lt": value is not None and _number(value) < bound,
    }
    # An operator of a later Kubernetes: taken as met, so that the DaemonSet is looked at rather than passed over.
    return outcomes.get(str(expression.get("operator")), True)


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else 0
