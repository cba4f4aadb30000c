from typing import Any

from fleetwell.api.incident import AttemptResult, Phase
from fleetwell.api.node_operation import OperationPhase
from fleetwell.api.policy import Mode, Remedy, Rule, Rung
from fleetwell.policy.instructions import CancelOperation, DrainNode, Operate, Quarantine, Restore
from fleetwell.policy.view import PodsView
from policy.builders import REMAP, UNKNOWN_XID, command, finding, minutes, node, policy
from policy.world import World, to_proving, to_remedying

ONE_REBOOT = Rule(name="one", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.REBOOT, deadline="10m"),))


def bad_world(**changes: Any) -> World:
    return World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"), policies=[policy(**changes)])


def test_a_hold_stops_everything_and_what_was_before_comes_back_with_its_time() -> None:
    world = bad_world()
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(3)
    deadline = world.status().drain
    world.tell("inc-1", hold=command(world.now))
    world.turn()
    assert world.phase() is Phase.HELD
    drains = len(world.done(DrainNode))
    world.turn(minutes(30))
    assert len(world.done(DrainNode)) == drains
    assert world.nodes["ip-1"].our_taint
    world.tell("inc-1", hold=None)
    world.turn()
    drain = world.status().drain
    assert world.phase() is Phase.DRAINING
    assert deadline is not None
    assert drain is not None
    assert drain.deadline == deadline.deadline + minutes(30)


def test_a_hold_cancels_an_operation_that_has_not_begun_and_it_is_not_counted() -> None:
    world = bad_world()
    to_remedying(world)
    world.tell("inc-1", hold=command(world.now))
    world.turn()
    assert [it.name for it in world.done(CancelOperation)] == ["inc-1-a1"]
    world.tell("inc-1", hold=None)
    world.turns(2)
    assert [it.result for it in world.status().attempts] == [AttemptResult.CANCELLED, AttemptResult.INTENDED]
    assert world.status().attempts[1].remedy is Remedy.REBOOT


def test_an_attempt_that_was_held_before_it_existed_is_written_off() -> None:
    world = bad_world()
    world.obey = lambda it: not isinstance(it, Operate)
    to_remedying(world)
    world.tell("inc-1", hold=command(world.now))
    world.turn()
    world.tell("inc-1", hold=None)
    world.turn(minutes(60))
    assert world.status().attempts[0].result is AttemptResult.CANCELLED


def test_a_release_gives_the_node_back_at_once_and_it_stays_given_back() -> None:
    world = bad_world()
    to_remedying(world)
    world.tell("inc-1", release=command(world.now))
    world.turns(5)
    assert world.phase() is Phase.RELEASED
    assert not world.nodes["ip-1"].our_taint
    assert len(world.episodes) == 1


def test_a_stronger_fault_ends_the_effect_of_a_persons_release() -> None:
    world = bad_world()
    to_remedying(world)
    world.tell("inc-1", release=command(world.now))
    world.turns(2)
    world.says("ip-1", finding(REMAP))
    world.turn()
    assert len(world.episodes) == 2


def test_an_approval_lets_what_waits_for_a_person_go_on() -> None:
    world = World.of(node("ip-1", finding(UNKNOWN_XID)), node("ip-2"), node("ip-3"))
    world.turns(3)
    assert world.phase() is Phase.NEEDS_PERSON
    world.tell("inc-1", approve=command(world.now))
    world.turns(3)
    assert world.done(DrainNode)


def test_an_approval_lets_an_overdue_drain_proceed() -> None:
    world = bad_world()
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(3)
    world.turn(minutes(10))
    assert world.phase() is Phase.DRAINING
    world.tell("inc-1", approve=command(world.now))
    world.turn()
    assert world.status().attempts


def test_a_retry_forgets_the_attempts_and_is_carried_out_once() -> None:
    world = bad_world(rules=(ONE_REBOOT,))
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.FAILED)
    world.turn()
    assert world.phase() is Phase.NEEDS_PERSON
    world.tell("inc-1", retry=command(world.now))
    world.turns(2)
    assert [it.number for it in world.status().attempts] == [1, 2]
    world.operation("inc-1-a2", OperationPhase.FAILED)
    world.turns(3)
    assert world.phase() is Phase.NEEDS_PERSON
    assert len(world.status().attempts) == 2


def test_a_machine_that_a_person_mended_is_proven_and_goes_back() -> None:
    world = bad_world(rules=(ONE_REBOOT,))
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.FAILED)
    world.turn()
    world.boots("ip-1", "boot-2")
    world.turn()
    assert world.phase() is Phase.PROVING


def test_dry_run_says_what_it_would_do_and_touches_nothing() -> None:
    world = bad_world(mode=Mode.DRY_RUN)
    world.turns(5)
    hold = world.status().hold
    assert hold is not None
    assert hold.reason == "DryRun"
    assert "would quarantine the node" in hold.message
    assert not world.effects


def test_going_to_dry_run_in_the_middle_begins_nothing_more() -> None:
    world = bad_world()
    world.turns(2)
    world.policies = [policy(mode=Mode.DRY_RUN)]
    world.turns(5)
    assert not world.reboots()
    assert world.nodes["ip-1"].our_taint


def test_paused_starts_nothing_new() -> None:
    world = bad_world(mode=Mode.PAUSED)
    world.turns(5)
    assert not world.effects


def test_s9_paused_finishes_what_was_begun_and_never_blocks_a_release() -> None:
    world = bad_world()
    to_proving(world)
    world.policies = [policy(mode=Mode.PAUSED)]
    world.turn()
    world.operation("inc-1-p1", OperationPhase.SUCCEEDED)
    world.turns(2)
    assert world.phase() is Phase.RELEASED
    assert world.done(Restore)


def test_s9_recovery_goes_on_in_dry_run_for_what_was_taken_before() -> None:
    world = bad_world()
    to_proving(world)
    world.policies = [policy(mode=Mode.DRY_RUN)]
    world.operation("inc-1-p1", OperationPhase.SUCCEEDED)
    world.turns(2)
    assert world.phase() is Phase.RELEASED
    assert not world.nodes["ip-1"].our_taint


def test_s28_removing_the_policy_releases_what_it_held() -> None:
    world = bad_world()
    world.turns(2)
    assert world.done(Quarantine)
    world.policies = []
    world.turns(2)
    assert world.phase() is Phase.RELEASED
    assert "no policy governs the node" in world.story()
    assert not world.nodes["ip-1"].our_taint


def test_a_problem_of_the_policy_holds_and_says_so() -> None:
    world = bad_world()
    world.problem = "DaemonSet kube-system/nvidia-device-plugin does not tolerate our taint"
    world.turns(3)
    hold = world.status().hold
    assert hold is not None
    assert hold.reason == "Precondition"
    assert "nvidia-device-plugin" in hold.message
    assert not world.effects


def test_two_policies_of_equal_priority_hold_and_release_nothing() -> None:
    world = bad_world()
    world.turns(2)
    world.policies = [policy("gpus"), policy("also")]
    world.turns(3)
    assert world.nodes["ip-1"].our_taint
    assert not world.reboots()


def test_a_problem_in_the_middle_of_a_drain_stops_the_evictions_and_keeps_the_quarantine() -> None:
    world = bad_world()
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(3)
    drains = len(world.done(DrainNode))
    assert drains
    world.problem = "DaemonSet kube-system/nvidia-device-plugin does not tolerate our taint"
    world.turns(3)
    assert len(world.done(DrainNode)) == drains
    assert world.nodes["ip-1"].our_taint


def test_a_policy_that_cannot_be_read_releases_nothing() -> None:
    """A controller that was set back to an older version must not take what it cannot read for what was deleted."""
    world = World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"))
    world.turns(3)
    world.policies, world.problem = [], "RemediationPolicy gpus cannot be read by this controller"
    world.turns(3)
    assert not world.phase().ended
    assert "cannot be read" in world.status().summary
    assert world.nodes["ip-1"].our_taint
    world.problem = ""
    world.turns(2)
    assert world.phase() is Phase.RELEASED
    assert not world.nodes["ip-1"].our_taint


def test_an_approval_lifts_the_hold_that_it_found_and_no_later_one() -> None:
    """The clocks of those who write the words are their own: one that is a day ahead must not outvote every hold."""
    world = bad_world()
    world.turns(3)
    world.tell("inc-1", hold=command(world.now))
    world.turn(minutes(1))
    world.tell("inc-1", approve=command(world.now + minutes(1440), by="bob"))
    world.turn(minutes(1))
    assert world.phase() is not Phase.HELD
    world.tell("inc-1", hold=command(world.now))
    world.turn(minutes(1))
    assert world.phase() is Phase.HELD
    world.tell("inc-1", approve=command(world.now - minutes(60), by="bob"))
    world.turn(minutes(1))
    assert world.phase() is not Phase.HELD
