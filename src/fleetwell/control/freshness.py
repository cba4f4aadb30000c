"""Which agents are alive, told by the controller's own clock.

A Lease's times are the node's and may be wrong by hours, so only one thing is read from it: whether it has changed
since we looked last. A controller that has just started gives every agent a full period before it calls one silent.
"""

from __future__ import annotations

from collections.abc import Callable

from fleetwell.kube.objects import Lease


class Freshness:
    """When each agent's Lease last changed, as seen by us."""

    def __init__(self, stale_after: float, monotonic: Callable[[], float]) -> None:
        self.stale_after = stale_after
        self._monotonic = monotonic
        self._seen: dict[str, tuple[str, float]] = {}
        self._stale: set[str] = set()

    def expect(self, node: str) -> None:
        """Note that the node has or had an agent, though no Lease of it was seen: from now on it may be silent."""
        self._seen.setdefault(node, ("", self._monotonic()))

    def renewed(self, lease: Lease) -> bool:
        """Take a Lease as it is now; True when that changes what is known: first sight, or back from silence."""
        node, at = lease.metadata.name, lease.spec.renew_time or ""
        before = self._seen.get(node)
        if before is not None and before[0] == at:
            return False
        self._seen[node] = (at, self._monotonic())
        was_stale = node in self._stale
        self._stale.discard(node)
        return was_stale or before is None

    def forget(self, node: str) -> None:
        """Forget an agent whose node is gone."""
        self._seen.pop(node, None)
        self._stale.discard(node)

    def newly_stale(self) -> list[str]:
        """Give the nodes whose agents have fallen silent since this was asked last."""
        limit = self._monotonic() - self.stale_after
        fallen = [node for node, (_, at) in self._seen.items() if at <= limit and node not in self._stale]
        self._stale.update(fallen)
        return fallen

    @property
    def silent(self) -> frozenset[str]:
        """Nodes whose agents are known to be silent."""
        return frozenset(self._stale)

    def renewed_at(self, node: str) -> str:
        """Give the renewal that was seen last, as the agent wrote it."""
        return self._seen.get(node, ("", 0.0))[0]

    def fresh(self, node: str) -> bool:
        """Whether the agent's Lease has changed, or was first expected, recently enough."""
        seen = self._seen.get(node)
        return seen is not None and seen[1] > self._monotonic() - self.stale_after
