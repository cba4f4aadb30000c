"""Disruption budget and pace: which of the waiting requests may go on now, and what to say to the others.

The budget bounds the taking of capacity that still works. What is already out costs nothing more, so a fleet that is
broken beyond its budget can still be repaired, at the pace. Giving nodes back never asks here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetwell.api.fields import span, words
from fleetwell.api.incident import Hold, IncidentKind, IncidentStatus, Phase
from fleetwell.api.policy import DisruptionBudget
from fleetwell.policy.case import PRECONDITION, ordered_away, unfinished
from fleetwell.policy.instructions import Answer, Granted, Request, RequestKind
from fleetwell.policy.pools import Out, Pool, Pools
from fleetwell.policy.story import LOOK_AGAIN
from fleetwell.policy.view import Episode, NodeView, Policy

BUDGET = "Budget"
PACE = "Pace"
_NAMED = 4
"""Nodes that a hold names; the rest are counted."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The fleet as budget and pace see it."""

    nodes: Mapping[str, NodeView]
    """By name."""
    episodes: Mapping[str, Episode]
    """By name: the open ones, and the ended ones of at least the longest pace interval."""
    policies: Mapping[str, Policy]
    """By name."""
    pools: Pools

    @classmethod
    def of(cls, nodes: Iterable[NodeView], episodes: Iterable[Episode], policies: Iterable[Policy]) -> Fleet:
        """Build it whole, counting every node."""
        known = tuple(policies)
        members = {node.name: node for node in nodes}
        return cls(
            nodes=members,
            episodes={episode.name: episode for episode in episodes},
            policies={policy.name: policy for policy in known},
            pools=Pools.of(members.values(), known),
        )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A pool's disruption budget at one moment."""

    pool: str
    nodes: int
    """Nodes admitted to work."""
    out: dict[str, Out]
    limit: int
    """How many may be out, a gang counting once."""

    @property
    def unavailable(self) -> int:
        """How many count as out: nodes, or gangs that were hit as a whole."""
        return len({out.gang or name for name, out in self.out.items()})

    def words(self) -> str:
        """Say it as a hold does: how many are out of how many, the limit, and which ones."""
        shown = [f"{name} ({out.why})" for name, out in sorted(self.out.items())]
        names = ", ".join(shown[:_NAMED]) + (f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else "")
        return f"{self.unavailable} of {self.nodes} out, limit {self.limit}" + (f": {names}" if names else "")


@dataclass(frozen=True, kw_only=True)
class PaceNow:
    """A pool's pace at one moment."""

    pool: str
    running: tuple[str, ...]
    """Nodes on which a remedy is under way."""
    at_most: int
    free_at: dt.datetime | None
    """When the interval since the last start is over; None when no remedy was begun yet."""

    def words(self) -> str:
        """Say how many remedies run, of how many that may, and on which nodes."""
        names = f": {', '.join(self.running[:_NAMED])}" if self.running else ""
        return f"{len(self.running)} of {self.at_most} remedies under way in pool {self.pool}{names}"


@dataclass(kw_only=True)
class _Pass:
    """One pool within one pass: what is granted counts at once for those who come after."""

    budget: Budget
    counted: set[str]
    pace: PaceNow
    interval: dt.timedelta

    @classmethod
    def of(cls, pool: str, fleet: Fleet, now: dt.datetime) -> _Pass:
        budget = budget_of(pool, fleet)
        counted = {out.gang or name for name, out in budget.out.items()}
        return cls(budget=budget, counted=counted, pace=pace_of(pool, fleet, now), interval=pace_interval(pool, fleet))

    def quarantine(self, request: Request, node: NodeView, now: dt.datetime) -> Answer:
        if node.unproven:
            return Granted()
        key, out = node.gang or node.name, self.budget.out.get(node.name)
        lost = out.lost if out is not None else key in self.counted
        if not lost and len(self.counted | {key}) > self.budget.limit:
            return _hold(BUDGET, self.budget.words(), now)
        self.counted.add(key)
        self.budget.out[node.name] = Out(why=f"our incident {request.episode}", gang=node.gang)
        return Granted()

    def remedy(self, request: Request, now: dt.datetime) -> Answer:
        if len(self.pace.running) >= self.pace.at_most:
            return _hold(PACE, self.pace.words(), now)
        free_at = self.pace.free_at
        if free_at is not None and now < free_at:
            text = f"another remedy was begun in pool {request.pool}; the next may begin in {words(free_at - now)}"
            return Hold(reason=PACE, message=text, since=now, look_again_at=free_at)
        running = tuple(sorted((*self.pace.running, request.node)))
        self.pace = replace(self.pace, running=running, free_at=now + self.interval if self.interval else None)
        return Granted()


def admit(requests: Sequence[Request], fleet: Fleet, now: dt.datetime) -> dict[str, Answer]:
    """Answer every request, by the episode's name; who has waited longest is served first."""
    answers: dict[str, Answer] = {}
    passes: dict[str, _Pass] = {}
    for request in sorted(requests, key=lambda it: (it.since, it.node, it.episode)):
        node = fleet.nodes.get(request.node)
        if node is None or not fleet.pools.pool(request.pool).policies:
            text = f"node {request.node} is not in pool {request.pool} of the fleet as it is known now"
            answers[request.episode] = _hold(PRECONDITION, text, now)
            continue
        if request.pool not in passes:
            passes[request.pool] = _Pass.of(request.pool, fleet, now)
        if request.kind is RequestKind.QUARANTINE:
            answers[request.episode] = passes[request.pool].quarantine(request, node, now)
        else:
            answers[request.episode] = passes[request.pool].remedy(request, now)
    return answers


def budget_of(pool: str, fleet: Fleet) -> Budget:
    """Give a pool's budget now; several policies on one pool: the strictest limit."""
    known = fleet.pools.pool(pool)
    budgets = (fleet.policies[name].spec.budget for name in known.policies if name in fleet.policies)
    limits = [_limit(budget, len(known.admitted)) for budget in budgets]
    out = {**known.out, **_by_episodes(pool, known, fleet)}
    return Budget(pool=pool, nodes=len(known.admitted), out=out, limit=min(limits, default=0))


def pace_of(pool: str, fleet: Fleet, now: dt.datetime) -> PaceNow:
    """Give a pool's pace now.

    An attempt that a hold or a question to a person has overtaken may still be under way on its node: it counts until
    its deadline. What waits longer for a person runs nothing, so it never holds the pace.
    """
    names = fleet.pools.pool(pool).policies
    paces = [fleet.policies[name].spec.pace for name in names if name in fleet.policies]
    mine = [episode for episode in fleet.episodes.values() if episode.status.pool == pool]
    running = [it.spec.node_name for it in mine if _runs(it.status, now)]
    starts = [attempt.started_at for it in mine for attempt in it.status.attempts]
    interval = pace_interval(pool, fleet)
    return PaceNow(
        pool=pool,
        running=tuple(sorted(running)),
        at_most=min((pace.max_concurrent for pace in paces), default=1),
        free_at=max(starts) + interval if starts and interval else None,
    )


def _runs(status: IncidentStatus, now: dt.datetime) -> bool:
    if status.phase.ended or not unfinished(status):
        return False
    return status.phase is Phase.REMEDYING or now < status.attempts[-1].deadline


def pace_interval(pool: str, fleet: Fleet) -> dt.timedelta:
    """Shortest time between two remedies in a pool: the longest that one of its policies asks for."""
    names = fleet.pools.pool(pool).policies
    asked = (span(fleet.policies[name].spec.pace.interval) for name in names if name in fleet.policies)
    return max(asked, default=dt.timedelta())


def _by_episodes(pool: str, known: Pool, fleet: Fleet) -> dict[str, Out]:
    """Nodes that an open episode has taken, or has leave to take, though the mark may not be visible yet.

    A machine that was ordered away stays out, under its episode's name, until the capacity that replaces it is there.
    """
    out = {}
    for episode in fleet.episodes.values():
        node = fleet.nodes.get(episode.spec.node_name)
        if not _takes(episode.status, pool):
            continue
        if node is None or node.uid != episode.spec.node_uid:
            if ordered_away(episode.status):
                out[episode.name] = Out(why=f"in place of {episode.spec.node_name} nothing has come yet")
            continue
        if node.name in known.admitted and not (episode.spec.kind is IncidentKind.ADMISSION and node.unproven):
            why = f"our incident {episode.name}"
            out[node.name] = Out(why=why, gang=node.gang)
    return out


def _takes(status: IncidentStatus, pool: str) -> bool:
    return status.pool == pool and not status.phase.ended and status.quarantine is not None


def _limit(budget: DisruptionBudget, nodes: int) -> int:
    """The percentage rounds down, but to no less than one where a small pool may repair one node at a time.

    As whatever is out counts, that one is granted only while no other node is out.
    """
    percent = nodes * budget.max_unavailable_percent // 100
    if budget.at_least_one and budget.max_unavailable_percent > 0:
        percent = max(1, percent)
    return percent if budget.max_unavailable is None else min(percent, budget.max_unavailable)


def _hold(reason: str, message: str, now: dt.datetime) -> Hold:
    return Hold(reason=reason, message=message, since=now, look_again_at=now + LOOK_AGAIN)
