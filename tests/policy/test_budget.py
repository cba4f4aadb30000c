from typing import Any

from fleetwell.api.incident import Hold, Phase
from fleetwell.api.node_operation import OperationPhase
from fleetwell.api.policy import DisruptionBudget, Pace, Selector
from fleetwell.policy.budget import Fleet, admit, budget_of, pace_of
from fleetwell.policy.instructions import Granted, Quarantine, Request, RequestKind
from fleetwell.policy.pools import Pools
from fleetwell.policy.view import NodeView
from policy.builders import REMAP, START, UNKNOWN_XID, command, finding, minutes, node, policy
from policy.world import World, to_remedying


def request(name: str, since: float = 0, kind: RequestKind = RequestKind.QUARANTINE) -> Request:
    return Request(kind=kind, episode=f"inc-{name}", node=name, pool="train", since=START + minutes(since))


def pool_of_size(size: int, **changes: Any) -> list[NodeView]:
    return [node(f"ip-{number}", **changes) for number in range(1, size + 1)]


def answers(nodes: list[NodeView], budget: DisruptionBudget, *requests: Request) -> list[str]:
    fleet = Fleet.of(nodes, [], [policy(budget=budget)])
    given = admit(requests, fleet, START + minutes(10))
    return [it.reason if isinstance(it, Hold) else "go" for it in (given[asked.episode] for asked in requests)]


def test_s7_the_limit_is_the_smaller_of_percentage_and_number_over_the_pool() -> None:
    asked = [request(f"ip-{number}", number) for number in range(1, 5)]
    assert answers(pool_of_size(30), DisruptionBudget(max_unavailable_percent=10), *asked) == ["go"] * 3 + ["Budget"]
    both = DisruptionBudget(max_unavailable_percent=10, max_unavailable=2)
    assert answers(pool_of_size(30), both, *asked) == ["go", "go", "Budget", "Budget"]


def test_s13_a_percentage_rounds_down_but_a_small_pool_may_still_repair_one() -> None:
    budget = DisruptionBudget(max_unavailable_percent=20)
    assert answers(pool_of_size(3), budget, request("ip-1"), request("ip-2", 1)) == ["go", "Budget"]
    none = DisruptionBudget(max_unavailable_percent=20, at_least_one=False)
    assert answers(pool_of_size(3), none, request("ip-1")) == ["Budget"]


def test_a_percentage_of_nothing_takes_nothing_also_in_a_small_pool() -> None:
    assert answers(pool_of_size(3), DisruptionBudget(max_unavailable_percent=0), request("ip-1")) == ["Budget"]
    none = DisruptionBudget(max_unavailable_percent=50, max_unavailable=0)
    assert answers(pool_of_size(3), none, request("ip-1")) == ["Budget"]


def test_whatever_the_cause_unavailable_counts() -> None:
    budget = DisruptionBudget(max_unavailable_percent=20)
    changes: tuple[dict[str, Any], ...] = (
        {"cordoned": True},
        {"ready": False},
        {"deleting": True},
        {"our_taint": True},
    )
    for change in changes:
        nodes = [*pool_of_size(9), node("ip-10", **change)]
        assert answers(nodes, budget, request("ip-1"), request("ip-2", 1)) == ["go", "Budget"], change


def test_a_node_that_was_never_admitted_neither_counts_nor_asks() -> None:
    budget = DisruptionBudget(max_unavailable_percent=10)
    nodes = [*pool_of_size(3), node("ip-4", unproven=True, ready=False)]
    assert answers(nodes, budget, request("ip-1"), request("ip-4", 1)) == ["go", "go"]
    fleet = Fleet.of(nodes, [], [policy()])
    assert budget_of("train", fleet).nodes == 3


def test_who_waited_longest_is_served_first() -> None:
    budget = DisruptionBudget(max_unavailable_percent=10)
    assert answers(pool_of_size(6), budget, request("ip-1", 5), request("ip-2", 3)) == ["Budget", "go"]


def test_a_gang_counts_once() -> None:
    nodes = [*pool_of_size(8), node("ip-9", gang="ml/job-1"), node("ip-10", gang="ml/job-1")]
    asked = (request("ip-9"), request("ip-10", 1), request("ip-1", 2))
    assert answers(nodes, DisruptionBudget(max_unavailable_percent=10), *asked) == ["go", "go", "Budget"]


def test_two_policies_on_one_pool_the_stricter_limit_holds() -> None:
    loose = policy("loose", budget=DisruptionBudget(max_unavailable_percent=90))
    strict = policy(
        "strict",
        priority=1,
        selector=Selector(match_labels={"strict": "yes"}),
        budget=DisruptionBudget(max_unavailable=1),
    )
    nodes = [*pool_of_size(8), node("ip-9", labels={"gpu": "yes", "strict": "yes"})]
    given = admit([request("ip-1"), request("ip-2", 1)], Fleet.of(nodes, [], [strict, loose]), START)
    assert isinstance(given["inc-ip-1"], Granted)
    assert isinstance(given["inc-ip-2"], Hold)


def test_a_hold_says_the_numbers_and_who_is_out_and_when_it_is_looked_at_again() -> None:
    nodes = [node(f"ip-{number}", *([finding()] if number < 3 else [])) for number in range(1, 7)]
    world = World.of(*nodes, policies=[policy(budget=DisruptionBudget())])
    world.turns(3)
    hold = world.status("inc-2").hold
    assert hold is not None
    assert hold.reason == "Budget"
    assert hold.message == "1 of 6 out, limit 1: ip-1 (our incident inc-1)"
    assert hold.look_again_at > hold.since


def test_s22_the_budget_is_asked_before_the_quarantine() -> None:
    world = World.of(*(node(f"ip-{number}", finding()) for number in range(1, 11)))
    world.turns(5)
    assert len(world.done(Quarantine)) == 3


def test_s48_what_is_already_lost_is_repaired_at_the_pace_although_too_much_is_broken() -> None:
    lost = [node(f"ip-{number}", finding(), ready=False) for number in range(1, 16)]
    well = [node(f"ip-{number}") for number in range(16, 101)]
    world = World.of(*lost, *well, policies=[policy(budget=DisruptionBudget(max_unavailable=10))])
    world.turns(6)
    assert len(world.done(Quarantine)) == 15
    assert len(world.reboots()) == 2
    assert sum(1 for it in world.episodes.values() if it.status.hold and it.status.hold.reason == "Pace") == 13


def test_working_capacity_is_still_bounded_while_too_much_is_lost() -> None:
    lost = [node(f"ip-{number}", ready=False) for number in range(1, 16)]
    well = [node(f"ip-{number}", *([finding()] if number == 16 else [])) for number in range(16, 101)]
    world = World.of(*lost, *well, policies=[policy(budget=DisruptionBudget(max_unavailable=10))])
    world.turns(6)
    hold = world.status().hold
    assert hold is not None
    assert hold.message.startswith("15 of 100 out, limit 10")
    assert not world.done(Quarantine)


def test_a_machine_that_was_ordered_away_counts_as_out_until_its_capacity_is_back() -> None:
    nodes = [node("ip-1", finding(REMAP)), *(node(f"ip-{it}") for it in range(2, 7))]
    world = World.of(*nodes, policies=[policy(budget=DisruptionBudget(max_unavailable=1))])
    to_remedying(world)
    del world.nodes["ip-1"]
    world.says("ip-2", finding())
    world.turns(3)
    hold = world.status("inc-2").hold
    assert hold is not None
    assert hold.message == "1 of 5 out, limit 1: inc-1 (in place of ip-1 nothing has come yet)"
    world.nodes["ip-7"] = node("ip-7")
    world.turns(3)
    assert world.phase("inc-1") is Phase.REPLACED
    assert world.done(Quarantine)[-1].node == "ip-2"


def test_who_waits_for_a_person_counts_as_out_and_never_holds_the_pace() -> None:
    nodes = [node("ip-1", finding(UNKNOWN_XID)), node("ip-2", finding()), *(node(f"ip-{it}") for it in range(3, 9))]
    world = World.of(*nodes, policies=[policy(pace=Pace(max_concurrent=1))])
    world.turns(6)
    assert world.phase("inc-1") is Phase.NEEDS_PERSON
    assert "ip-1" in budget_of("train", world.fleet()).out
    assert pace_of("train", world.fleet(), world.now).running == ("ip-2",)


def test_counting_node_by_node_equals_counting_all_anew() -> None:
    world = policy()
    nodes = [node(f"ip-{number}") for number in range(1, 6)]
    pools = Pools.of(nodes, [world])
    changed = [node("ip-1", cordoned=True), node("ip-2", unproven=True), node("ip-3", pool="other")]
    for one in changed:
        pools.put(one, world)
    pools.drop("ip-4")
    anew = Pools.of([*changed, nodes[4]], [world])
    assert [pools.pool(name) for name in ("train", "other")] == [anew.pool(name) for name in ("train", "other")]
    assert pools.available("train", {one.name: one for one in (*changed, nodes[4])}) == 2


def test_a_node_that_another_controller_takes_away_is_out() -> None:
    """Karpenter's disruption and ours are one disruption to who works there."""
    budget = DisruptionBudget(max_unavailable_percent=20)
    nodes = [*pool_of_size(8), node("ip-9", taints_of_others=("karpenter.sh/disrupted",))]
    assert answers(nodes, budget, request("ip-1")) == ["Budget"]
    assert answers([*nodes, node("ip-10", taints_of_others=("nvidia.com/gpu",))], budget, request("ip-1")) == ["go"]


def test_a_cordoned_node_still_works_and_is_not_taken_beyond_the_limit() -> None:
    """Else a pool that somebody has cordoned for a day would be drained without any budget."""
    budget = DisruptionBudget(max_unavailable_percent=10)
    cordoned = pool_of_size(20, cordoned=True)
    assert answers(cordoned, budget, request("ip-1"), request("ip-2", 1)) == ["Budget", "Budget"]
    two = [*pool_of_size(2, cordoned=True), *(node(f"ip-{number}") for number in range(3, 21))]
    assert answers(two, budget, request("ip-1"), request("ip-2", 1), request("ip-3", 2)) == ["go", "go", "Budget"]


def test_a_hold_on_a_node_that_restarts_makes_no_room_for_another_restart() -> None:
    world = World.of(node("ip-1", finding()), policies=[policy(pace=Pace(max_concurrent=1))])
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.RUNNING)
    world.tell("inc-1", hold=command(world.now))
    world.turn()
    assert world.phase() is Phase.HELD
    ask = request("ip-1", kind=RequestKind.REMEDY)
    assert isinstance(admit([ask], world.fleet(), world.now)["inc-ip-1"], Hold)
    assert isinstance(admit([ask], world.fleet(), world.now + minutes(11))["inc-ip-1"], Granted)
