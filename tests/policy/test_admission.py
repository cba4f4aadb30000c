"""A new node on its way to work: it proves itself, and what it cannot prove takes no capacity from anybody."""

from fleetwell.api.incident import Phase
from fleetwell.api.policy import Rule
from fleetwell.policy.instructions import Operate, Quarantine
from policy.builders import HUNG, LADDER, finding, minutes, node, policy
from policy.world import World


def unanswered() -> World:
    """A new node whose proof nobody carries out."""
    world = World.of(node("ip-1", unproven=True))
    world.turn()
    assert world.status().proofs
    world.turn(minutes(10))
    return world


def test_a_new_node_whose_proof_could_not_be_had_is_told_to_a_person_and_not_quarantined() -> None:
    world = unanswered()
    assert world.phase() is Phase.NEEDS_PERSON
    assert "the new node cannot be admitted: no proof in time" in world.story()
    assert not world.done(Quarantine)


def test_it_is_tried_again_now_and_then() -> None:
    world = unanswered()
    world.turn()
    step = world.status().next
    assert step is not None
    assert step.step == "another try to have it proven"
    world.turn(minutes(15))
    assert world.phase() is Phase.PROVING
    world.turn()
    assert [it.name for it in world.done(Operate)] == ["inc-1-p1", "inc-1-p2"]


def test_it_is_not_tried_while_something_else_speaks_against_it() -> None:
    world = unanswered()
    world.says("ip-1", finding(HUNG))
    world.turn()
    world.turn(minutes(15))
    assert world.phase() is Phase.NEEDS_PERSON


def test_a_fault_of_a_new_node_that_goes_away_is_followed_by_its_proof_at_once() -> None:
    patient = Rule(name="patient", faults=("*",), tolerate="1h", ladder=LADDER)
    world = World.of(node("ip-1", finding(), unproven=True), policies=[policy(rules=(patient,))])
    world.turn()
    assert world.phase() is Phase.TOLERATING
    world.says("ip-1")
    world.turn()
    assert world.phase() is Phase.PROVING
