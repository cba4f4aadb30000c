import datetime as dt
from dataclasses import replace
from typing import Any

from msgspec import structs

from fleetwell.api.incident import AttemptResult, Phase
from fleetwell.api.node_operation import OperationPhase
from fleetwell.api.policy import Limits, Pace, Remedy, Replacement, Rule, Rung
from fleetwell.policy.instructions import Granted, Operate, OrderReplacement, Quarantine, Restore
from fleetwell.policy.ladder import answer, decide
from fleetwell.policy.view import ReplacementView
from policy.builders import HARD, LADDER, REMAP, finding, minutes, node, policy
from policy.world import World, to_remedying

ONE_REBOOT = Rule(name="one", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.REBOOT, deadline="10m"),))


def bad_world(**changes: Any) -> World:
    others = [node(f"ip-{number}") for number in (2, 3)]
    return World.of(node("ip-1", finding()), *others, policies=[policy(**changes)])


def test_the_attempt_is_written_down_with_its_boot_before_its_effect_exists() -> None:
    world = bad_world()
    world.obey = lambda it: not isinstance(it, Operate)
    to_remedying(world)
    attempt = world.status().attempts[0]
    assert attempt.result is AttemptResult.INTENDED
    assert attempt.expected_boot_id == "boot-1"
    assert not world.operations


def test_an_effect_that_was_lost_is_wanted_again_under_the_same_name() -> None:
    world = bad_world()
    world.obey = lambda it: not isinstance(it, Operate)
    to_remedying(world)
    world.obey = lambda _: True
    world.turns(3)
    assert [effect.name for effect in world.reboots()] == ["inc-1-a1"]
    assert world.reboots()[0].spec.operation_id == "uid-inc-1-a1"


def test_a_reboot_has_succeeded_only_when_the_boot_id_is_another() -> None:
    world = bad_world()
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.SUCCEEDED, "done")
    world.turns(2)
    assert world.phase() is Phase.REMEDYING
    assert world.status().attempts[0].result is AttemptResult.RUNNING
    world.turn(minutes(10))
    assert world.status().attempts[0].result is AttemptResult.FAILED
    assert "boot id is the same" in world.status().attempts[0].detail


def test_a_failed_reboot_climbs_to_replace() -> None:
    world = bad_world()
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.FAILED, "no permission")
    world.turn()
    assert [it.remedy for it in world.status().attempts] == [Remedy.REBOOT, Remedy.REPLACE]
    assert world.done(OrderReplacement)[0].name == "inc-1-a2"


def test_an_uncertain_end_counts_as_an_attempt() -> None:
    world = bad_world(rules=(ONE_REBOOT,))
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.UNCERTAIN, "no record of its end")
    world.turn()
    assert world.status().attempts[0].result is AttemptResult.UNCERTAIN
    assert world.phase() is Phase.NEEDS_PERSON


def test_a_rung_with_two_attempts_is_tried_twice() -> None:
    twice = Rule(name="twice", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.REBOOT, attempts=2), LADDER[1]))
    world = bad_world(rules=(twice,))
    to_remedying(world)
    for number in (1, 2):
        world.operation(f"inc-1-a{number}", OperationPhase.REFUSED)
        world.turn()
    assert [it.remedy for it in world.status().attempts] == [Remedy.REBOOT, Remedy.REBOOT, Remedy.REPLACE]


def test_s2_an_event_of_an_earlier_boot_opens_nothing() -> None:
    world = World.of(node("ip-1", finding(boot="boot-0")), node("ip-2"))
    world.turns(3)
    assert not world.episodes


def test_s2_a_node_that_restarted_meanwhile_is_proven_and_not_rebooted() -> None:
    world = bad_world()
    world.turns(2)
    world.boots("ip-1", "boot-2", finding(boot="boot-1"))
    world.turns(2)
    assert world.phase() is Phase.PROVING
    assert not world.reboots()


def test_s2_leave_that_comes_after_the_node_restarted_begins_nothing() -> None:
    world = bad_world()
    world.obey = lambda it: not isinstance(it, Operate)
    to_remedying(world)
    waiting = replace(world.episodes["inc-1"], status=structs.replace(world.status(), attempts=()))
    step = decide(waiting, world.around(waiting), world.now)
    assert step.request is not None
    world.boots("ip-1", "boot-2", finding(boot="boot-1"))
    answered = answer(waiting, step.request, Granted(), world.around(waiting), world.now)
    assert not answered.attempts


def test_s4_attempts_are_capped_per_episode() -> None:
    many = Rule(name="many", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.REBOOT, attempts=10),))
    world = bad_world(rules=(many,), limits=Limits(attempts_per_episode=2))
    to_remedying(world)
    for number in (1, 2):
        world.operation(f"inc-1-a{number}", OperationPhase.FAILED)
        world.turn()
    assert world.phase() is Phase.NEEDS_PERSON
    assert "the policy allows 2" in world.story()
    assert len(world.reboots()) == 2


def test_s4_attempts_are_capped_per_machine_and_week_over_episodes() -> None:
    world = bad_world(limits=Limits(attempts_per_machine_week=3))
    world.machine_attempts = 3
    world.turns(6)
    assert world.phase() is Phase.NEEDS_PERSON
    assert not world.reboots()


def test_s5_an_operation_that_nobody_takes_ends_at_its_deadline() -> None:
    world = bad_world()
    to_remedying(world)
    world.turn(minutes(10))
    assert world.status().attempts[0].result is AttemptResult.FAILED
    assert "no end by the deadline" in world.status().attempts[0].detail


def test_s5_a_replacement_that_stays_ordered_ends_at_its_deadline_with_a_person() -> None:
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"))
    to_remedying(world)
    world.turn(minutes(20))
    assert world.status().attempts[0].result is AttemptResult.FAILED
    assert world.phase() is Phase.NEEDS_PERSON


def test_a_provider_that_says_failed_ends_the_attempt_at_once() -> None:
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"))
    to_remedying(world)
    world.orders["inc-1-a1"] = ReplacementView(name="inc-1-a1", state="Failed", detail="no capacity")
    world.turn()
    assert world.status().attempts[0].detail == "no capacity"
    assert world.phase() is Phase.NEEDS_PERSON


def test_a_machine_that_is_replaced_is_no_longer_reserved_from_those_who_take_it_away() -> None:
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"))
    marks: list[bool] = []

    def note(it: object) -> bool:
        if isinstance(it, Quarantine):
            marks.append(it.reserve)
        return True

    world.obey = note
    to_remedying(world)
    assert marks[0]
    assert not marks[-1]


def test_replaced_means_gone_by_our_order_and_the_pool_whole_again() -> None:
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"))
    to_remedying(world)
    del world.nodes["ip-1"]
    world.turn()
    assert world.phase() is Phase.REMEDYING
    world.nodes["ip-4"] = node("ip-4", unproven=True)
    world.turns(2)
    assert world.phase() is Phase.REMEDYING
    world.operation("inc-2-p1", OperationPhase.SUCCEEDED)
    world.turns(2)
    assert world.done(Restore)[-1].node == "ip-4"
    assert world.phase() is Phase.REPLACED


def test_a_pool_that_does_not_get_its_capacity_back_needs_a_person_and_ends_when_it_does() -> None:
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"))
    to_remedying(world)
    del world.nodes["ip-1"]
    world.turn()
    world.turn(minutes(30))
    assert world.phase() is Phase.NEEDS_PERSON
    world.nodes["ip-4"] = node("ip-4")
    world.turn()
    assert world.phase() is Phase.REPLACED


def test_s25_an_episode_ends_when_its_node_is_gone_without_our_order() -> None:
    world = bad_world()
    world.turns(2)
    world.nodes["ip-1"] = node("ip-1", uid="another")
    world.turn()
    assert world.phase() is Phase.GONE
    world.turn()
    assert world.finished()


def test_without_a_provider_replace_is_passed_over_and_a_person_is_asked() -> None:
    world = bad_world(rules=(HARD,), replacement=Replacement())
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.FAILED)
    world.turn()
    assert world.phase() is Phase.NEEDS_PERSON


def test_the_pace_lets_the_second_remedy_wait_for_the_interval() -> None:
    nodes = [node(f"ip-{number}", finding()) for number in (1, 2)]
    world = World.of(*nodes, *(node(f"ip-{it}") for it in range(3, 9)), policies=[policy(pace=Pace(interval="5m"))])
    world.turns(5)
    holds = [it.status.hold for it in world.episodes.values() if it.status.hold is not None]
    assert [hold.reason for hold in holds] == ["Pace"]
    assert len(world.reboots()) == 1
    world.turn(dt.timedelta(minutes=5))
    assert len(world.reboots()) == 2
