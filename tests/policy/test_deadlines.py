"""What is announced for a moment happens then: the controller sleeps until it, and nothing else may wake it later."""

import datetime as dt
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import pytest

from fleetwell.api.incident import AttemptResult, Phase
from fleetwell.api.node_operation import OperationPhase, ProofResult
from fleetwell.api.policy import DrainRule, Remedy, Rule, Rung
from fleetwell.policy.instructions import Quarantine
from fleetwell.policy.view import PodsView
from policy.builders import APP, BUS, LADDER, REMAP, finding, minutes, node, policy
from policy.world import World, to_proving, to_remedying

SECOND = dt.timedelta(seconds=1)
UNSURE = ProofResult(check="compute", verdict="UNKNOWN", detail="torch is missing")


def bad_world(**rule: Any) -> World:
    hard = Rule(name="hard", faults=("Gpu*",), ladder=LADDER, **rule)
    return World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"), policies=[policy(rules=(hard,))])


def tolerated() -> World:
    world = bad_world(tolerate="5m")
    world.turn()
    return world


def not_looked_at_again() -> World:
    world = tolerated()
    world.boots("ip-1", "boot-2", finding(boot="boot-1"))
    world.turn(minutes(1))
    return world


def gone_by_itself() -> World:
    world = tolerated()
    world.says("ip-1")
    world.turn(minutes(1))
    return world


def quarantined() -> World:
    world = bad_world(drain=DrainRule(after="5m"))
    world.turns(2)
    return world


def recovered() -> World:
    world = quarantined()
    world.says("ip-1")
    world.turn()
    return world


def without_its_mark() -> World:
    world = bad_world()
    world.obey = lambda it: not isinstance(it, Quarantine)
    world.turns(2)
    return world


def draining() -> World:
    world = bad_world(drain=DrainRule(deadline="10m"))
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(4)
    return world


def suspected() -> World:
    return _suspected("Hold")


def suspected_and_told_to_proceed() -> World:
    return _suspected("Proceed")


def _suspected(on_deadline: Literal["Hold", "Proceed"]) -> World:
    world = bad_world(drain=DrainRule(deadline="10m", on_deadline=on_deadline))
    world.nodes["ip-1"] = node("ip-1", finding(BUS, suspected=True), pods=PodsView(to_evict=1))
    world.turns(3)
    return world


def in_others_hands() -> World:
    world = tolerated()
    world.change("ip-1", taints_of_others=("karpenter.sh/disrupted",))
    world.turn(minutes(1))
    return world


def remedied() -> World:
    world = bad_world()
    to_remedying(world)
    world.turn()
    return world


def replaced() -> World:
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"))
    to_remedying(world)
    return world


def without_its_capacity() -> World:
    world = replaced()
    del world.nodes["ip-1"]
    world.turn()
    return world


def restarting_a_job() -> World:
    rule = Rule(name="apps", faults=("Application*",), ladder=(Rung(remedy=Remedy.RESTART_WORKLOAD, deadline="5m"),))
    world = World.of(node("ip-1", finding(APP)), policies=[policy(rules=(rule,))])
    world.turns(2)
    return world


def not_whole() -> World:
    world = remedied()
    world.operation("inc-1-a1", OperationPhase.SUCCEEDED)
    world.change("ip-1", boot_id="boot-2", agent_fresh=False)
    world.turns(2)
    return world


def proven() -> World:
    world = bad_world()
    to_proving(world)
    return world


def not_proven_yet() -> World:
    world = proven()
    world.operation("inc-1-p1", OperationPhase.SUCCEEDED, results=(UNSURE,))
    world.turn()
    return world


def not_admitted() -> World:
    world = World.of(node("ip-1", unproven=True))
    world.says("ip-1", settled=False)
    world.turn()
    world.turn(minutes(15))
    world.turn()
    return world


class Kept(NamedTuple):
    begin: Callable[[], World]
    happened: Callable[[World], bool]


def enters(begin: Callable[[], World], phase: Phase) -> Kept:
    return Kept(begin, lambda world: world.phase() is phase)


def holds(begin: Callable[[], World], reason: str) -> Kept:
    return Kept(begin, lambda world: (hold := world.status().hold) is not None and hold.reason == reason)


def fails(begin: Callable[[], World]) -> Kept:
    return Kept(begin, lambda world: world.status().attempts[0].result is AttemptResult.FAILED)


ALL = (
    enters(tolerated, Phase.QUARANTINED),
    enters(not_looked_at_again, Phase.NEEDS_PERSON),
    enters(gone_by_itself, Phase.CLEARED),
    enters(quarantined, Phase.DRAINING),
    enters(recovered, Phase.PROVING),
    holds(without_its_mark, "Precondition"),
    holds(draining, "DrainDeadline"),
    holds(suspected, "Suspected"),
    enters(suspected_and_told_to_proceed, Phase.DRAINING),
    enters(in_others_hands, Phase.NEEDS_PERSON),
    fails(remedied),
    fails(replaced),
    enters(without_its_capacity, Phase.NEEDS_PERSON),
    fails(restarting_a_job),
    fails(not_whole),
    fails(proven),
    Kept(not_proven_yet, lambda world: len(world.status().proofs) == 2),
    enters(not_admitted, Phase.PROVING),
)


@pytest.mark.parametrize("kept", ALL, ids=lambda kept: kept.begin.__name__)
def test_what_is_announced_for_a_moment_happens_then_and_not_before(kept: Kept) -> None:
    world = kept.begin()
    step = world.status().next
    assert step is not None
    world.turn(step.at - world.now - SECOND)
    assert not kept.happened(world), world.story()
    world.turn(SECOND)
    assert kept.happened(world), world.story()
