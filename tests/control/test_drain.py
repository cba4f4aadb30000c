"""Emptying a node: whom it asks to go, what it makes of a refusal, and when it is done."""

from __future__ import annotations

import datetime as dt

import pytest

from control.ground import START, Fleet, node_path, pod_path
from control.memory_api import refused_by_budget, refused_by_priority, refused_by_two_budgets
from fleetwell.api.policy import DrainRule
from fleetwell.control.effects.drain import LANDINGS, Drains
from fleetwell.control.effects.reach import Outcome
from fleetwell.policy.instructions import DrainNode

MARK = {"key": "fleetwell.io/quarantine", "effect": "NoSchedule"}
WANTED = DrainNode(node="a", uid="a-uid", incident="i", rule=DrainRule(), deadline=START + dt.timedelta(minutes=30))


class Sweeper:
    """Sweeps a fleet's node, with time passing between the sweeps."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.drains = Drains()

    async def sweep(self, seconds: float = 2.0) -> Outcome:
        self.fleet.time.passed += seconds
        return await self.drains.sweep(self.fleet.reach(), WANTED)

    def evicted(self) -> list[str]:
        return [path.split("/")[-2] for path in self.fleet.api.sent("POST", "/eviction")]


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.node("a", taints=[MARK])
    return fleet


@pytest.fixture
def sweeper(fleet: Fleet) -> Sweeper:
    return Sweeper(fleet)


async def test_what_kubectl_leaves_alone_is_left_alone(fleet: Fleet, sweeper: Sweeper) -> None:
    fleet.pod("work", "a", owner="job")
    fleet.pod("elsewhere", "b", owner="job")
    fleet.pod("plugin", "a", owner="plugin", kind="DaemonSet")
    fleet.pod("static", "a", annotations={"kubernetes.io/config.mirror": "x"})
    fleet.pod("done", "a", owner="job")
    fleet.api.edit(pod_path("done"), lambda it: it["status"].update(phase="Succeeded"))
    outcome = await sweeper.sweep()
    assert sweeper.evicted() == ["work"]
    assert outcome.pods is not None
    assert outcome.pods.to_evict == 1


async def test_a_drain_is_done_only_when_two_looks_find_nothing(fleet: Fleet, sweeper: Sweeper) -> None:
    first = await sweeper.sweep()
    assert (first.settled, first.pods) == (False, None)
    fleet.pod("late", "a", owner="job")
    assert not (await sweeper.sweep()).settled
    fleet.api.remove(pod_path("late"))
    assert not (await sweeper.sweep()).settled
    last = await sweeper.sweep()
    assert last.settled
    assert last.pods is not None
    assert last.pods.to_evict == 0


async def test_nothing_is_evicted_from_a_node_that_lost_its_mark(fleet: Fleet, sweeper: Sweeper) -> None:
    """S23: an administrator uncordons, and the drain still runs."""
    fleet.pod("work", "a", owner="job")
    fleet.api.edit(node_path("a"), lambda it: it["spec"].update(taints=[]))
    outcome = await sweeper.sweep()
    assert sweeper.evicted() == []
    assert "wears no mark" in outcome.detail


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refused_by_budget(), "budget web needs 2 healthy pods"),
        (refused_by_priority(), "API priority"),
        (refused_by_two_budgets(), "more than one PodDisruptionBudget"),
    ],
)
async def test_refusals_are_told_apart_and_asked_again_with_growing_pauses(
    fleet: Fleet, sweeper: Sweeper, answer: tuple[int, dict[str, object]], said: str
) -> None:
    """S29."""
    fleet.pod("work", "a", owner="job")
    # API priority's refusals are asked again by the client itself; the drain sees those that outlast its patience.
    fleet.api._patience = 0.0
    fleet.api.evictions[pod_path("work")] = [answer] * 3
    outcome = await sweeper.sweep()
    assert outcome.pods is not None
    assert said in outcome.pods.blocked_by
    asked = []
    for _ in range(10):
        asked.append(len(sweeper.evicted()))
        await sweeper.sweep()
    assert asked == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4]


async def test_marked_pods_are_honoured_until_the_deadline(fleet: Fleet, sweeper: Sweeper) -> None:
    fleet.pod("one", "a", annotations={"karpenter.sh/do-not-disrupt": "true"})
    fleet.pod("two", "a", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
    outcome = await sweeper.sweep()
    assert sweeper.evicted() == []
    assert "do-not-disrupt" in outcome.detail
    await sweeper.sweep(1800)
    assert sorted(sweeper.evicted()) == ["one", "two"]


async def test_a_pod_without_grace_is_never_evicted_with_grace_zero(fleet: Fleet, sweeper: Sweeper) -> None:
    """S11: the object went while its container still ran."""
    fleet.pod("hasty", "a", terminationGracePeriodSeconds=0)
    await sweeper.sweep()
    assert fleet.api.objects[pod_path("hasty")]["metadata"]["deletionTimestamp"] == "2026-11-30T12:00:03Z"


async def test_a_pod_that_does_not_end_is_counted_as_stuck_and_named(fleet: Fleet, sweeper: Sweeper) -> None:
    """S43."""
    fleet.pod("wedged", "a", owner="job")
    await sweeper.sweep()
    during = await sweeper.sweep()
    after = await sweeper.sweep(60)
    assert during.pods is not None
    assert after.pods is not None
    assert (during.pods.stuck_terminating, after.pods.stuck_terminating) == (0, 1)
    assert after.pods.to_evict == 1
    assert "work/wedged" in after.pods.blocked_by


async def test_an_owner_whose_pods_keep_landing_is_named_and_no_longer_evicted(fleet: Fleet, sweeper: Sweeper) -> None:
    """S44."""
    tolerates = [{"operator": "Exists"}]
    outcome = None
    for number in range(LANDINGS + 3):
        name = f"again-{number}"
        fleet.pod(name, "a", owner="stubborn", kind="ReplicaSet", tolerations=tolerates)
        outcome = await sweeper.sweep()
        if number < LANDINGS:
            fleet.api.remove(pod_path(name))
    assert len(sweeper.evicted()) == LANDINGS
    assert outcome is not None
    assert "ReplicaSet work/stubborn" in outcome.detail
    assert "toleration of every taint" in outcome.detail


async def test_a_node_that_is_gone_has_nothing_left_to_drain(fleet: Fleet, sweeper: Sweeper) -> None:
    fleet.api.remove(node_path("a"))
    assert (await sweeper.sweep()).settled
