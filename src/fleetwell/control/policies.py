"""Tells the author of a policy how it stands: what it governs, and what keeps it from being enforced."""

from __future__ import annotations

from collections import Counter

import structlog

from fleetwell.api.policy import PolicyStatus
from fleetwell.api.resources import POLICIES
from fleetwell.control.effects.reach import Reach
from fleetwell.control.picture import Picture
from fleetwell.control.providers.template import NotAllowed, resource_of
from fleetwell.control.settings import MANAGER
from fleetwell.control.tolerations import intolerant, problem
from fleetwell.kube.client import PatchKind
from fleetwell.kube.errors import Conflict, KubeError
from fleetwell.kube.objects import Node
from fleetwell.kube.resource import DAEMONSETS
from fleetwell.policy.validate import problems
from fleetwell.policy.view import Policy

log = structlog.get_logger(__name__)


class PolicyReports:
    """Looks at the DaemonSets now and then, and writes the policies' statuses when they change."""

    def __init__(self, reach: Reach, picture: Picture) -> None:
        self._reach = reach
        self._picture = picture
        self._written: dict[str, PolicyStatus] = {}
        self._intolerant: dict[str, str] = {}

    async def check_tolerations(self) -> None:
        """Find the pools where our taint would lock out DaemonSets; there, cordon is used until they tolerate it.

        :raises KubeError: the DaemonSets could not be listed; what was known stays.
        """
        daemonsets = (await self._reach.client.list(DAEMONSETS)).items
        cordon: dict[str, frozenset[str]] = {}
        said: dict[str, str] = {}
        for policy, pools in self._nodes_by_pool().items():
            found = intolerant(daemonsets, pools)
            if found:
                cordon[policy] = frozenset(one.pool for one in found)
                said[policy] = problem(found)
        if said != self._intolerant:
            log.warning("DaemonSets and our taint", problems=said or "none any more")
        self._intolerant = said
        self._picture.cordon_instead(cordon)

    async def report(self) -> None:
        """Write the statuses that have changed."""
        nodes = Counter(self._picture.governed(name).policy for name in self._picture.nodes)
        incidents = Counter(
            self._picture.governed(it.spec.node_name).policy for it in self._picture.book.open_incidents()
        )
        for name, policy in list(self._picture.policies.items()):
            status = PolicyStatus(
                observed_generation=policy.generation,
                nodes=nodes[name],
                open_incidents=incidents[name],
                problem=self._problem(policy),
            )
            if self._written.get(name) == status:
                continue
            body = {
                "metadata": {"resourceVersion": self._picture.policy_versions.get(name, "")},
                "status": {
                    "observedGeneration": status.observed_generation,
                    "nodes": status.nodes,
                    "openIncidents": status.open_incidents,
                    "problem": status.problem,
                },
            }
            try:
                await self._reach.client.patch(
                    POLICIES, name, body, kind=PatchKind.MERGE, subresource="status", field_manager=MANAGER
                )
            except Conflict:
                continue  # it has just changed, and is looked at again in the next round
            except KubeError as error:
                log.warning("policy status not written", policy=name, why=str(error))
                continue
            self._written[name] = status

    def _nodes_by_pool(self) -> dict[str, dict[str, list[Node]]]:
        found: dict[str, dict[str, list[Node]]] = {}
        for name, node in self._picture.nodes.items():
            under = self._picture.governed(name)
            if under.policy:
                found.setdefault(under.policy, {}).setdefault(under.pool, []).append(node)
        return found

    def _problem(self, policy: Policy) -> str:
        said = problems(policy.spec)
        template = policy.spec.replacement.template
        if policy.spec.replacement.provider == "template" and template is not None:
            try:
                resource_of(template, self._reach.settings.template_kinds)
            except NotAllowed as error:
                said.append(str(error))
        standing = (self._picture.governed(name) for name in self._picture.nodes)
        tie = next((it.problem for it in standing if it.policy == policy.name and it.problem), "")
        said += [tie] if tie else []
        if policy.name in self._intolerant:
            said.append(self._intolerant[policy.name])
        return "; ".join(said)[:2000]
