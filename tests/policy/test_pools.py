"""How a pool is counted while nodes come, change and go."""

from fleetwell.api.policy import DisruptionBudget, Selector
from fleetwell.policy.budget import Fleet, budget_of
from fleetwell.policy.pools import Pool, Pools, out_because
from policy.builders import node, policy


def test_a_pool_whose_last_node_is_gone_is_forgotten_and_so_is_the_limit_of_a_policy_that_governs_none_there() -> None:
    loose = policy("loose", budget=DisruptionBudget(max_unavailable_percent=50))
    strict = policy(
        "strict",
        priority=1,
        selector=Selector(match_labels={"strict": "yes"}),
        budget=DisruptionBudget(max_unavailable=0),
    )
    nodes = [node("ip-1"), node("ip-2"), node("ip-3", labels={"gpu": "yes", "strict": "yes"})]
    fleet = Fleet.of(nodes, [], [loose, strict])
    assert budget_of("train", fleet).limit == 0
    fleet.pools.drop("ip-3")
    assert fleet.pools.pool("train").policies == {"loose": 2}
    assert budget_of("train", fleet).limit == 1
    fleet.pools.drop("ip-1")
    fleet.pools.drop("ip-2")
    assert fleet.pools.pool("train") == Pool()


def test_a_node_that_comes_back_to_work_is_not_counted_as_out_any_more() -> None:
    pools = Pools.of([node("ip-1", our_taint=True)], [policy()])
    assert set(pools.pool("train").out) == {"ip-1"}
    pools.put(node("ip-1"), policy())
    assert not pools.pool("train").out
    assert pools.pool("train").policies == {"gpus": 1}


def test_a_node_that_no_policy_governs_any_more_counts_nowhere() -> None:
    pools = Pools.of([node("ip-1"), node("ip-2")], [policy()])
    pools.put(node("ip-1"), None)
    assert pools.pool("train").admitted == {"ip-2"}


def test_what_is_being_deleted_is_not_there_to_be_worked_with() -> None:
    nodes = [node("ip-1"), node("ip-2", deleting=True), node("ip-3", unproven=True), node("ip-4", cordoned=True)]
    pools = Pools.of(nodes, [policy()])
    assert pools.available("train", {one.name: one for one in nodes}) == 2
    assert pools.available("train", {}) == 0


def test_a_node_is_out_for_the_gravest_of_its_reasons() -> None:
    assert out_because(node("ip-1")) == ""
    assert out_because(node("ip-1", cordoned=True)) == "cordoned"
    assert out_because(node("ip-1", cordoned=True, our_taint=True)) == "quarantined"
    assert out_because(node("ip-1", our_taint=True, deleting=True)) == "being deleted"
    assert out_because(node("ip-1", deleting=True, ready=False)) == "NotReady"
