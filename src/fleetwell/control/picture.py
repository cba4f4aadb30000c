"""The fleet as the controller knows it at this moment, kept up to date change by change.

Every change marks what it touches as dirty: a node, or an episode. Nothing here is ever worked out anew over all nodes
but when a policy changes, and nothing here does IO.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from fleetwell.api.fields import span
from fleetwell.api.policy import QuarantineBy
from fleetwell.api.resources import Incident, NodeHealth, RemediationPolicy
from fleetwell.control.book import Book
from fleetwell.control.freshness import Freshness
from fleetwell.control.node_view import MARKED_FOR, MARKS, Beside, node_view
from fleetwell.kube.objects import Lease, Node
from fleetwell.policy.budget import Fleet
from fleetwell.policy.matching import governing, pool_of
from fleetwell.policy.pools import Pools
from fleetwell.policy.view import (
    Episode,
    NodeView,
    Policy,
    Surroundings,
)


@dataclasses.dataclass(frozen=True)
class Governed:
    """Under which policy a node stands."""

    policy: str = ""
    problem: str = ""
    pool: str = ""


class Picture:
    """Nodes, health, incidents, operations and policies, with what follows from them."""

    def __init__(self, freshness: Freshness) -> None:
        self.freshness = freshness
        self.book = Book()
        self.nodes: dict[str, Node] = {}
        self.views: dict[str, NodeView] = {}
        self.healths: dict[str, NodeHealth] = {}
        self.policies: dict[str, Policy] = {}
        self.dirty_nodes: set[str] = set()
        self.policy_versions: dict[str, str] = {}
        """Policy → resourceVersion, so that what a former leader still had on the way is not written over ours."""
        self.unread_policies: AbstractSet[str] = frozenset()
        """Policies that are there and cannot be read, as after a step back to an older controller."""
        self.cordon_pools: dict[str, frozenset[str]] = {}
        """Policy → pools where our taint would lock out DaemonSets."""
        self._governed: dict[str, Governed] = {}
        self._counted: defaultdict[str, set[str]] = defaultdict(set)
        self._grown: set[str] = set()
        self._pools = Pools()

    # What is seen

    def node_seen(self, node: Node) -> None:
        """Take a node as it is now."""
        name = node.metadata.name
        before = self.nodes.get(name)
        if before is not None and before.metadata.uid != node.metadata.uid:
            self.node_gone(name)
        self.nodes[name] = node
        self._refresh(name)

    def node_gone(self, name: str) -> None:
        """Take a node away."""
        self.nodes.pop(name, None)
        view = self.views.pop(name, None)
        self._governed.pop(name, None)
        self.freshness.forget(name)
        if view is not None:
            self._counted[view.pool].discard(name)
        self._pools.drop(name)
        self.dirty_nodes.discard(name)
        self.book.touch(name)

    def health_seen(self, health: NodeHealth) -> None:
        """Take what an agent says."""
        name = health.metadata.name
        before = self.healths.get(name)
        self.healths[name] = health
        if name in self.nodes:
            if health.status.node_uid == self.nodes[name].metadata.uid:
                self.freshness.expect(name)
            self._refresh(name)
        if before is None or before.spec != health.spec:
            self.book.touch(name)

    def health_gone(self, name: str) -> None:
        """Take away what an agent said."""
        self.healths.pop(name, None)
        self._refresh(name)

    def lease_seen(self, lease: Lease) -> None:
        """Take an agent's Lease: only whether it has changed counts."""
        if self.freshness.renewed(lease):
            self._refresh(lease.metadata.name)

    def agents_fallen_silent(self) -> list[str]:
        """Note which agents have fallen silent since this was asked last, and name their nodes."""
        fallen = [name for name in self.freshness.newly_stale() if name in self.nodes]
        for name in fallen:
            self._refresh(name)
        return fallen

    def look_again(self, node: str) -> None:
        """Work a node's view out anew, where something that is no object has changed."""
        self._refresh(node)

    def incident_seen(self, incident: Incident) -> None:
        """Take an incident, unless what we wrote ourselves is newer."""
        if self.book.incident_seen(incident) and incident.status is not None and incident.status.phase.ended:
            self.dirty_nodes.add(incident.spec.node_name)

    def incident_gone(self, name: str) -> None:
        """Take an incident away; its node may wear marks that nobody owns any more."""
        incident = self.book.incident_gone(name)
        if incident is not None and incident.spec.node_name in self.nodes:
            self.dirty_nodes.add(incident.spec.node_name)

    def policy_seen(self, policy: RemediationPolicy) -> None:
        """Take a policy; a changed spec changes who governs what."""
        name = policy.metadata.name
        self.policy_versions[name] = policy.metadata.resource_version
        fresh = Policy(name=name, generation=policy.metadata.generation, spec=policy.spec)
        if self.policies.get(name) != fresh:
            self.policies[name] = fresh
            self._policies_changed()

    def policy_gone(self, name: str) -> None:
        """Take a policy away; the nodes that it alone governed are released by the ladder."""
        self.policy_versions.pop(name, None)
        if self.policies.pop(name, None) is not None:
            self._policies_changed()

    def cordon_instead(self, pools: dict[str, frozenset[str]]) -> None:
        """Note in which pools our taint would lock out DaemonSets."""
        if pools != self.cordon_pools:
            self.cordon_pools = pools
            self.book.touch_all()

    @property
    def dirty(self) -> bool:
        """Whether there is anything to be looked at."""
        return bool(self.dirty_nodes or self.book.dirty or self._grown)

    def take_dirty_nodes(self) -> set[str]:
        """Give the nodes that are dirty, and begin to gather anew."""
        nodes, self.dirty_nodes = self.dirty_nodes, set()
        return nodes

    def take_dirty_episodes(self) -> set[str]:
        """Give the episodes that are dirty, and begin to gather anew."""
        if self._grown:
            self.book.dirty.update(self._waiting_for_capacity(self._grown))
            self._grown = set()
        episodes, self.book.dirty = self.book.dirty, set()
        return episodes

    # What follows

    def governed(self, node: str) -> Governed:
        """Say under which policy a node stands."""
        return self._governed.get(node, Governed())

    def policy_of(self, node: str) -> Policy | None:
        """Give the policy that governs a node, with the quarantine that its pool can live with."""
        under = self.governed(node)
        return self._adapted(self.policies.get(under.policy), under.pool)

    def pool_nodes(self, pool: str) -> int:
        """Count a pool's nodes that are admitted and not going."""
        return len(self._counted[pool])

    def fleet(self, now: dt.datetime) -> Fleet:
        """Give the fleet as budget and pace see it."""
        longest = max((span(policy.spec.pace.interval) for policy in self.policies.values()), default=dt.timedelta())
        return Fleet(
            nodes=self.views, episodes=self.book.counting(now - longest), policies=self.policies, pools=self._pools
        )

    def around(self, episode: Episode, now: dt.datetime) -> Surroundings:
        """Give what a decision about an episode may look at."""
        spec = episode.spec
        view = self.views.get(spec.node_name)
        here = view is not None and view.uid == spec.node_uid
        if view is not None and here:
            node: NodeView | None = dataclasses.replace(view, pods=self.book.pods(episode.name))
            policy = self.policy_of(spec.node_name)
            pool = view.pool or episode.status.pool
        else:
            node, pool = None, episode.status.pool
            policy = self._adapted(self.policies.get(spec.policy), pool)
        return Surroundings(
            node=node,
            policy=policy,
            policy_problem=self.governed(spec.node_name).problem
            if policy is not None and here
            else self._unread(policy),
            operations=dict(self.book.operations(episode.name)),
            replacement=self.book.replacement(episode.name),
            pool_nodes=self.pool_nodes(pool) - (1 if node is None and self.book.is_back(episode) else 0),
            machine_attempts=self.book.machine_attempts(episode, now),
        )

    def marked_for(self, node: str) -> str:
        """Name the incident for which a node wears our marks; empty when it wears none."""
        found = self.nodes.get(node)
        if found is None:
            return ""
        annotations = found.metadata.annotations
        return annotations.get(MARKED_FOR, "") if MARKS in annotations or MARKED_FOR in annotations else ""

    def health_version(self, node: str) -> str:
        """Give the resourceVersion of a NodeHealth as decisions know it."""
        health = self.healths.get(node)
        return health.metadata.resource_version if health else ""

    # How it is kept

    def _unread(self, policy: Policy | None) -> str:
        if policy is not None or not self.unread_policies:
            return ""
        return f"RemediationPolicy {', '.join(sorted(self.unread_policies))} cannot be read by this controller"

    def _refresh(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None:
            return
        health = self.healths.get(name)
        status = health.status if health else None
        before = self.views.get(name)
        beside = Beside(
            health=status,
            agent_fresh=self.freshness.fresh(name),
            agent_known=status is not None and status.node_uid == node.metadata.uid,
        )
        view = node_view(node, beside)
        if before is None or (before.labels, before.instance_type) != (view.labels, view.instance_type):
            under = self._find_policy(view)
            if before is not None and before.pool != under.pool:
                self._counted[before.pool].discard(name)
            self._governed[name] = under
        view = dataclasses.replace(view, pool=self._governed[name].pool)
        self.views[name] = view
        self._count(view)
        if before is None or not _same_to_decisions(before, view):
            self.dirty_nodes.add(name)
            self.book.touch(name)

    def _find_policy(self, view: NodeView) -> Governed:
        policy, problem = governing(view, self.policies.values())
        if policy is None:
            return Governed(problem=problem)
        return Governed(policy=policy.name, problem=problem, pool=pool_of(view.labels, policy.spec))

    def _policies_changed(self) -> None:
        self._counted.clear()
        self._pools = Pools()
        for name, view in list(self.views.items()):
            under = self._find_policy(view)
            self._governed[name] = under
            self.views[name] = dataclasses.replace(view, pool=under.pool)
            self._count(self.views[name])
            self.dirty_nodes.add(name)
        self.book.touch_all()

    def _count(self, view: NodeView) -> None:
        self._pools.put(view, self.policies.get(self._governed[view.name].policy))
        if view.deleting or view.unproven or not self._governed[view.name].policy:
            self._counted[view.pool].discard(view.name)
        elif view.name not in self._counted[view.pool]:
            self._counted[view.pool].add(view.name)
            self._grown.add(view.pool)

    def _waiting_for_capacity(self, pools: set[str]) -> list[str]:
        """Name the episodes whose node is gone, in pools that have just gained one."""
        return [
            it.metadata.name
            for it in self.book.open_incidents()
            if it.status is not None and it.status.pool in pools and not self._here(it)
        ]

    def _here(self, incident: Incident) -> bool:
        view = self.views.get(incident.spec.node_name)
        return view is not None and view.uid == incident.spec.node_uid

    def _adapted(self, policy: Policy | None, pool: str) -> Policy | None:
        if policy is None or pool not in self.cordon_pools.get(policy.name, ()):
            return policy
        return dataclasses.replace(policy, spec=replace(policy.spec, quarantine=QuarantineBy.CORDON))


def _same_to_decisions(one: NodeView, other: NodeView) -> bool:
    return dataclasses.replace(one, resource_version="") == dataclasses.replace(other, resource_version="")
