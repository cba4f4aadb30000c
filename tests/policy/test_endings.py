"""What ends an episode whose machine is gone, what a veto covers, and who may have taken a mark away."""

from dataclasses import replace

import pytest
from msgspec import structs

from fleetwell.api.incident import AttemptResult, Phase
from fleetwell.health.vocabulary import Recovery
from fleetwell.policy.instructions import Quarantine
from fleetwell.policy.opening import vetoed
from policy.builders import BUS, HUNG, REMAP, command, finding, minutes, node, policy
from policy.world import World, to_remedying

SECOND = minutes(1) / 60


def without_its_capacity() -> World:
    """The machine was replaced by our order, and nothing has come in its place in time."""
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"))
    to_remedying(world)
    del world.nodes["ip-1"]
    world.turn()
    world.turn(minutes(30))
    assert world.phase() is Phase.NEEDS_PERSON
    return world


def test_that_the_machine_is_gone_ends_the_attempt_that_ordered_it_away() -> None:
    world = without_its_capacity()
    (attempt,) = world.status().attempts
    assert attempt.result is AttemptResult.SUCCEEDED
    assert attempt.detail == "the old node's UID is gone"
    assert attempt.ended_at is not None
    assert world.status().timeline.remedied is not None


@pytest.mark.parametrize("word", ["release", "approve"])
def test_a_persons_word_closes_the_episode_of_a_machine_that_is_gone(word: str) -> None:
    world = without_its_capacity()
    world.tell("inc-1", **{word: command(world.now)})
    world.turn()
    assert world.phase() is Phase.NEEDS_PERSON
    world.tell("inc-1", **{word: command(world.now + SECOND)})
    world.turn(minutes(1))
    assert world.phase() is Phase.GONE
    assert "closed by ada: the machine is gone" in world.story()


def vetoed_world() -> World:
    world = World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"))
    to_remedying(world)
    world.turn()
    world.change("ip-1", our_taint=False)
    world.turn()
    assert world.phase() is Phase.VETOED
    return world


def test_a_veto_does_not_cover_what_cannot_be_told_elsewhere_but_covers_what_asks_for_nothing() -> None:
    past = list(vetoed_world().episodes.values())
    assert not vetoed(node("ip-1", finding(), finding(HUNG, "host")), past)
    noted = finding(BUS, "gpu/GPU-9", recovery=Recovery.NONE)
    assert vetoed(node("ip-1", finding(), noted), past)
    assert not vetoed(node("ip-1"), past)


def test_a_suspicion_is_left_alone_only_after_a_proof_that_was_passed() -> None:
    world = World.of(node("ip-1", finding(BUS, suspected=True)), node("ip-2"), node("ip-3"))
    world.turn()
    released = replace(world.episodes["inc-1"], status=structs.replace(world.status(), phase=Phase.RELEASED))
    cleared = replace(released, status=structs.replace(released.status, phase=Phase.CLEARED))
    suspect = node("ip-1", finding(BUS, suspected=True))
    assert vetoed(suspect, [released])
    assert not vetoed(suspect, [cleared])
    assert not vetoed(node("ip-1", finding()), [released])


def test_who_took_our_mark_away_is_said_even_when_nothing_shows_who() -> None:
    assert "(nothing shows a program)" in vetoed_world().story()


def test_an_ended_episode_misses_no_mark() -> None:
    world = vetoed_world()
    before = world.status()
    world.turns(3)
    assert world.status().phase is Phase.VETOED
    assert world.status().decisions == before.decisions
    assert world.status().timeline.ended == before.timeline.ended


def test_a_mark_that_a_program_takes_away_while_a_person_is_asked_is_noted_and_the_question_stays() -> None:
    world = World.of(node("ip-1", finding("GpuUnknownXid")), node("ip-2"), node("ip-3"))
    world.turns(4)
    assert world.phase() is Phase.NEEDS_PERSON
    for _ in range(2):
        world.change("ip-1", our_taint=False, taint_removed_by="kubelet")
        world.turns(2)
    assert world.phase() is Phase.NEEDS_PERSON
    assert "our mark was taken away again by kubelet" in world.story()
    assert len(world.done(Quarantine)) == 2


def test_a_node_whose_pool_cannot_be_told_any_more_keeps_counting_where_it_did() -> None:
    world = World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"), policies=[policy()])
    world.turn()
    world.change("ip-1", pool="")
    world.turn()
    assert world.status().pool == "train"
