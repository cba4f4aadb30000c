"""How much of each pool is out, kept up to date node by node: the fleet is never counted anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleetwell.policy.matching import governing, pool_of
from fleetwell.policy.others import others_at_work
from fleetwell.policy.view import NodeView, Policy

CORDONED = "cordoned"


@dataclass(frozen=True, kw_only=True)
class Out:
    """A node that takes no new work now, whoever is the cause."""

    why: str
    gang: str = ""
    lost: bool = True
    """False: no new work comes, and what runs there still works, so that taking the node is a loss like any other."""


@dataclass(kw_only=True)
class Pool:
    """One pool's nodes: those admitted to work, those of them that are out, and how many each policy governs."""

    admitted: set[str] = field(default_factory=set)
    out: dict[str, Out] = field(default_factory=dict)
    policies: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Place:
    pool: str
    policy: str


class Pools:
    """The pools of a fleet. Nodes that no policy governs belong to none."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self._places: dict[str, _Place] = {}

    @classmethod
    def of(cls, nodes: Iterable[NodeView], policies: Iterable[Policy]) -> Pools:
        """Count a whole fleet, for a start, a test or a rehearsal."""
        known = tuple(policies)
        pools = cls()
        for node in nodes:
            policy, _ = governing(node, known)
            pools.put(node, policy)
        return pools

    def put(self, node: NodeView, policy: Policy | None) -> None:
        """Take in a node as it is now, and the policy that governs it."""
        self.drop(node.name)
        if policy is None:
            return
        name = node.pool or pool_of(node.labels, policy.spec)
        pool = self._pools.setdefault(name, Pool())
        self._places[node.name] = _Place(pool=name, policy=policy.name)
        pool.policies[policy.name] = pool.policies.get(policy.name, 0) + 1
        if node.unproven:
            return
        pool.admitted.add(node.name)
        why = out_because(node)
        if why:
            pool.out[node.name] = Out(why=why, gang=node.gang, lost=why != CORDONED)

    def drop(self, node: str) -> None:
        """Forget a node that is gone."""
        place = self._places.pop(node, None)
        if place is None:
            return
        pool = self._pools[place.pool]
        pool.admitted.discard(node)
        pool.out.pop(node, None)
        pool.policies[place.policy] -= 1
        if not pool.policies[place.policy]:
            del pool.policies[place.policy]
        if not pool.policies:
            del self._pools[place.pool]

    def pool(self, name: str) -> Pool:
        """Give a pool; one that has no nodes is empty."""
        return self._pools.get(name, Pool())

    def available(self, name: str, nodes: Mapping[str, NodeView]) -> int:
        """Nodes of a pool that are admitted and not being deleted: what a replacement has to bring back."""
        members = (nodes[it] for it in self.pool(name).admitted if it in nodes)
        return sum(1 for node in members if not node.deleting)


def out_because(node: NodeView) -> str:
    """Why a node takes no new work, whoever is the cause; empty when it does."""
    if not node.ready:
        return "NotReady"
    if node.deleting:
        return "being deleted"
    if node.our_taint:
        return "quarantined"
    return others_at_work(node) or (CORDONED if node.cordoned else "")
