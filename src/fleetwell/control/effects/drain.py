"""Empties a node by eviction, within PodDisruptionBudgets, until it is quiet.

One run is one sweep: read the node and its pods, ask for the evictions that are due, count what is left. The drain is
done when two sweeps in a row find nothing to move: the scheduler may not have seen our mark when the first one looked.
What a sweep learns is kept per incident in memory only; a new leader simply looks again.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from fleetwell.control.effects.evictable import Disposition, disposition, owner_key, title, why_it_lands
from fleetwell.control.effects.reach import SETTLED, Outcome, Reach, about_node, live_node, not_yet
from fleetwell.control.node_view import CORDON_MARK, our_marks
from fleetwell.kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, TooManyRequests
from fleetwell.kube.objects import Node, Pod, Taint
from fleetwell.kube.resource import PODS
from fleetwell.policy.instructions import DrainNode
from fleetwell.policy.view import QUARANTINE_TAINT, PodsView

LANDINGS = 3
"""How often pods of one owner may come back to the node before its pods are no longer evicted."""
PARALLEL = 8
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 30.0
"""Seconds between two requests to evict one pod: doubled after each refusal."""
MARK = Taint(key=QUARANTINE_TAINT, effect="NoSchedule")


class _Why(enum.IntEnum):
    """What holds a drain up, the most telling last."""

    TERMINATING = 0
    FAILING = 1
    OVERLOADED = 2
    PROTECTED = 3
    BUDGET = 4
    TWO_BUDGETS = 5
    LANDS_AGAIN = 6


@dataclass
class _Pause:
    until: float
    length: float


@dataclass
class _Progress:
    """What the sweeps of one drain have learnt."""

    begun: bool = False
    seen: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)
    """Owners whose pods were evicted."""
    landings: Counter[str] = field(default_factory=Counter)
    pauses: dict[str, _Pause] = field(default_factory=dict)
    empty_once: bool = False
    blocks: dict[str, tuple[_Why, str]] = field(default_factory=dict)
    """Pod UID → what held it up when it was asked last."""


class Drains:
    """The drains in progress, by incident."""

    def __init__(self) -> None:
        self._progress: dict[str, _Progress] = {}

    def forget(self, incident: str) -> None:
        """Drop what was learnt for an incident whose drain is over."""
        self._progress.pop(incident, None)

    async def sweep(self, reach: Reach, wanted: DrainNode) -> Outcome:
        """Look at the node once, ask for what is due, and say how many pods are left."""
        node = await live_node(reach, wanted.node, wanted.uid)
        if node is None:
            return SETTLED
        if not _wears_our_mark(node):
            return not_yet(f"nothing is evicted: {wanted.node} wears no mark that keeps new work off", again=2.0)
        progress = self._progress.setdefault(wanted.incident, _Progress())
        honor = wanted.rule.honor_do_not_disrupt and reach.clock.now() < wanted.deadline
        sorted_pods = await _look(reach, wanted.node, honor_marks=honor)
        _note_landings(progress, sorted_pods)
        await _evict_due(reach, progress, wanted, sorted_pods[Disposition.EVICT])
        return _counted(reach, progress, sorted_pods)


async def count_pods(reach: Reach, node: str) -> PodsView:
    """Count what a drain of the node would have before it; nothing is evicted."""
    pods = await _look(reach, node, honor_marks=True)
    moving = sum(len(found) for kind, found in pods.items() if kind is not Disposition.STAYS)
    return PodsView(to_evict=moving, stuck_terminating=len(pods[Disposition.STUCK]), counted_at=reach.clock.now())


async def _look(reach: Reach, node: str, *, honor_marks: bool) -> dict[Disposition, list[Pod]]:
    listing = await reach.client.list(PODS, field_selector=f"spec.nodeName={node}")
    now = reach.clock.now()
    found: dict[Disposition, list[Pod]] = {kind: [] for kind in Disposition}
    for pod in listing.items:
        found[disposition(pod, honor_marks=honor_marks, now=now)].append(pod)
    return found


def _wears_our_mark(node: Node) -> bool:
    tainted = any(taint.key == QUARANTINE_TAINT for taint in node.spec.taints)
    return tainted or node.spec.unschedulable or CORDON_MARK in our_marks(node.metadata.annotations)


def _note_landings(progress: _Progress, pods: dict[Disposition, list[Pod]]) -> None:
    """Count pods of owners that we evicted from and that are here anew."""
    for pod in (pod for kind in Disposition if kind is not Disposition.STAYS for pod in pods[kind]):
        uid, owner = pod.metadata.uid, owner_key(pod)
        if uid in progress.seen:
            continue
        progress.seen.add(uid)
        if progress.begun and owner in progress.owners:
            progress.landings[owner] += 1
            if progress.landings[owner] >= LANDINGS:
                text = (
                    f"{owner} puts pods onto the node again and again ({progress.landings[owner]} times, now "
                    f"{title(pod)}): {why_it_lands(pod, MARK)}; they are not evicted any more"
                )
                progress.blocks[uid] = (_Why.LANDS_AGAIN, text)
    progress.begun = True


async def _evict_due(reach: Reach, progress: _Progress, wanted: DrainNode, pods: list[Pod]) -> None:
    now = reach.clock.monotonic()
    due = [
        pod
        for pod in pods
        if progress.landings[owner_key(pod)] < LANDINGS
        and ((pause := progress.pauses.get(pod.metadata.uid)) is None or pause.until <= now)
    ]
    slots = asyncio.Semaphore(PARALLEL)

    async def one(pod: Pod) -> None:
        async with slots:
            await _evict(reach, progress, wanted, pod)

    async with asyncio.TaskGroup() as group:
        for pod in due:
            group.create_task(one(pod))


async def _evict(reach: Reach, progress: _Progress, wanted: DrainNode, pod: Pod) -> None:
    """Ask for one pod to go; a refusal is told apart, remembered and waited out."""
    uid, name = pod.metadata.uid, title(pod)
    try:
        await _request(reach, pod)
    except (NotFound, Conflict):
        pass  # gone, or another pod has its name by now: the next sweep sees
    except TooManyRequests as error:
        if error.disruption_budget:
            said = next((cause.message for cause in error.causes if cause.message), error.message)
            progress.blocks[uid] = (_Why.BUDGET, f"{name}: its PodDisruptionBudget allows no eviction now ({said})")
        else:
            progress.blocks[uid] = (_Why.OVERLOADED, f"{name}: the API server takes no requests now (API priority)")
        _pause(reach, progress, uid, error.retry_after)
        return
    except ServerError as error:
        if error.multiple_budgets:
            text = f"{name}: more than one PodDisruptionBudget selects it, so Kubernetes never evicts it; remove one"
            progress.blocks[uid] = (_Why.TWO_BUDGETS, text)
        else:
            progress.blocks[uid] = (_Why.FAILING, f"{name}: the API server failed ({error.message})")
        _pause(reach, progress, uid, error.retry_after)
        return
    except ApiError as error:
        progress.blocks[uid] = (_Why.FAILING, f"{name}: {error.reason}: {error.message}")
        _pause(reach, progress, uid, error.retry_after)
        return
    except KubeError as error:
        progress.blocks[uid] = (_Why.FAILING, f"{name}: {error}")
        _pause(reach, progress, uid, None)
        return
    else:
        progress.owners.add(owner_key(pod))
        message = f"Evicting {name} for Incident {wanted.incident}"
        reach.events.record(about_node(wanted.node, wanted.uid), "Evicting", message)
    progress.blocks.pop(uid, None)


async def _request(reach: Reach, pod: Pod) -> None:
    meta = pod.metadata
    if pod.spec.termination_grace_period_seconds != 0:
        await reach.client.evict(meta.name, meta.namespace, uid=meta.uid)
        return
    # With its own grace of 0 the object would be gone while its container still runs (karpenter #3032).
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": {"preconditions": {"uid": meta.uid}, "gracePeriodSeconds": 1},
    }
    await reach.client.raw("POST", PODS.path(meta.namespace, meta.name, "eviction"), body=msgspec.json.encode(body))


def _pause(reach: Reach, progress: _Progress, uid: str, at_least: float | None) -> None:
    before = progress.pauses.get(uid)
    length = min(LONGEST_PAUSE, before.length * 2) if before else FIRST_PAUSE
    progress.pauses[uid] = _Pause(reach.clock.monotonic() + max(length, at_least or 0.0), length)


def _counted(reach: Reach, progress: _Progress, pods: dict[Disposition, list[Pod]]) -> Outcome:
    moving = [pod for kind in Disposition if kind is not Disposition.STAYS for pod in pods[kind]]
    poll = reach.settings.drain_poll
    here = {pod.metadata.uid for pod in moving}
    progress.blocks = {uid: block for uid, block in progress.blocks.items() if uid in here}
    progress.pauses = {uid: pause for uid, pause in progress.pauses.items() if uid in here}
    if not moving and not progress.empty_once:
        progress.empty_once = True
        return not_yet("empty; looking once more, as the scheduler may not have seen our mark yet", again=poll)
    progress.empty_once = not moving
    stuck = pods[Disposition.STUCK]
    view = PodsView(
        to_evict=len(moving),
        stuck_terminating=len(stuck),
        blocked_by=_blocked(progress, pods),
        counted_at=reach.clock.now(),
    )
    return Outcome(settled=not moving, again=poll, pods=view, detail=view.blocked_by)


def _blocked(progress: _Progress, pods: dict[Disposition, list[Pod]]) -> str:
    """Say the most telling of what holds the drain up."""
    reasons = list(progress.blocks.values())
    reasons += [
        (_Why.PROTECTED, f"{title(pod)} is marked do-not-disrupt or safe-to-evict=false, honoured until the deadline")
        for pod in pods[Disposition.PROTECTED]
    ]
    reasons += [
        (_Why.TERMINATING, f"{title(pod)} is terminating beyond its grace: its processes do not end")
        for pod in pods[Disposition.STUCK]
    ]
    return max(reasons, key=lambda reason: reason[0], default=(_Why.TERMINATING, ""))[1]
