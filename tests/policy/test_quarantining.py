import datetime as dt

from fleetwell.api.incident import Phase
from fleetwell.api.policy import DrainRule, Remedy, Rule, Rung
from fleetwell.policy.instructions import DrainNode, Operate, Quarantine, RestartPods, Restore
from fleetwell.policy.story import bad_for
from fleetwell.policy.view import PodsView
from policy.builders import APP, BUS, HUNG, LADDER, REMAP, UNKNOWN_XID, finding, minutes, node, policy
from policy.world import World

PATIENT = Rule(name="patient", faults=("Gpu*",), tolerate="5m", ladder=LADDER)
SLOW = Rule(name="slow", faults=("Gpu*",), drain=DrainRule(after="5m", deadline="10m"), ladder=LADDER)


def world_with(rule: Rule) -> World:
    return World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"), policies=[policy(rules=(rule,))])


def test_a_fault_is_tolerated_as_long_as_the_rule_says_and_the_wait_is_announced() -> None:
    world = world_with(PATIENT)
    world.turn()
    step = world.status().next
    assert world.phase() is Phase.TOLERATING
    assert step is not None
    assert step.at == world.now + minutes(5)
    world.turn(minutes(5))
    assert world.phase() is Phase.QUARANTINED


def test_s12_a_flap_within_the_tolerance_takes_nothing_and_is_cleared_when_quiet() -> None:
    world = world_with(PATIENT)
    world.turn()
    world.says("ip-1")
    world.turn(minutes(1))
    world.turn(minutes(1))
    assert world.phase() is Phase.TOLERATING
    world.turn(minutes(2))
    assert world.phase() is Phase.CLEARED
    assert not world.effects


def test_s49_bad_time_adds_up_over_a_flapping_fault() -> None:
    world = world_with(PATIENT)
    world.turn()
    world.says("ip-1")
    world.turn(minutes(4))
    world.says("ip-1", finding())
    world.turn(minutes(1))
    assert bad_for(world.status(), world.now) == 240
    world.turn(minutes(1))
    assert world.phase() is Phase.QUARANTINED


def test_s20_readiness_that_flips_restarts_no_clock() -> None:
    world = world_with(PATIENT)
    world.turn()
    for ready in (False, True, False):
        world.change("ip-1", ready=ready)
        world.turn(minutes(1.5))
    opened = world.status().timeline.opened
    assert bad_for(world.status(), world.now) == 270
    world.turn(minutes(0.5))
    assert world.phase() is Phase.QUARANTINED
    assert world.status().timeline.opened == opened


def test_a_second_look_at_an_unchanged_node_writes_nothing() -> None:
    world = world_with(PATIENT)
    world.turns(2)
    before = world.status()
    world.turns(3)
    assert world.status() == before


def test_running_work_stays_until_the_drain_may_begin() -> None:
    world = world_with(SLOW)
    world.turns(3)
    assert world.done(Quarantine)
    assert not world.done(DrainNode)
    world.turn(minutes(5))
    assert world.done(DrainNode)


def test_the_drain_waits_until_our_mark_is_seen() -> None:
    world = world_with(SLOW)
    world.obey = lambda it: not isinstance(it, Quarantine)
    world.turns(3)
    world.turn(minutes(6))
    hold = world.status().hold
    assert world.phase() is Phase.QUARANTINED
    assert hold is not None
    assert "our mark is not on the node" in hold.message
    assert not world.done(DrainNode)


def test_s1_recovery_before_the_remedy_cancels_it_and_the_node_is_proven_and_released() -> None:
    world = world_with(SLOW)
    world.turns(2)
    world.says("ip-1")
    world.turn(minutes(1))
    world.turn(minutes(2))
    assert world.phase() is Phase.PROVING
    assert not world.reboots()
    assert "the remedy is cancelled" in world.story()


def test_s1_recovery_while_draining_cancels_the_remedy_too() -> None:
    world = world_with(SLOW)
    world.change("ip-1", pods=PodsView(to_evict=2))
    world.turns(2)
    world.turn(minutes(5))
    world.turn()
    assert world.phase() is Phase.DRAINING
    world.says("ip-1")
    world.turn()
    world.turn(minutes(2))
    world.turn()
    assert world.phase() is Phase.PROVING
    assert not world.reboots()


def test_a_drain_that_is_blocked_holds_at_its_deadline_and_names_what_blocks() -> None:
    world = world_with(Rule(name="now", faults=("Gpu*",), drain=DrainRule(deadline="10m"), ladder=LADDER))
    world.change("ip-1", pods=PodsView(to_evict=1, blocked_by="pod ml/train-0, budget ml/train"))
    world.turns(4)
    world.turn(minutes(10))
    hold = world.status().hold
    assert world.phase() is Phase.DRAINING
    assert hold is not None
    assert "pod ml/train-0, budget ml/train" in hold.message
    world.change("ip-1", pods=PodsView(to_evict=0))
    world.turns(2)
    assert world.phase() is Phase.REMEDYING


def test_a_drain_goes_on_at_its_deadline_where_the_rule_says_proceed() -> None:
    rule = Rule(name="p", faults=("Gpu*",), drain=DrainRule(deadline="10m", on_deadline="Proceed"), ladder=LADDER)
    world = world_with(rule)
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(4)
    world.turn(minutes(10))
    assert world.status().attempts


def test_pods_terminating_beyond_their_grace_do_not_block_a_reboot() -> None:
    world = world_with(Rule(name="now", faults=("Gpu*",), ladder=LADDER))
    world.change("ip-1", pods=PodsView(to_evict=1, stuck_terminating=1, blocked_by="pod ml/zombie"))
    world.turns(5)
    assert world.status().attempts
    assert "pod ml/zombie" in world.story()


def test_a_fault_that_could_not_be_understood_is_quarantined_and_left_to_a_person() -> None:
    world = World.of(node("ip-1", finding(UNKNOWN_XID)), node("ip-2"), node("ip-3"))
    world.turns(4)
    assert world.phase() is Phase.NEEDS_PERSON
    assert world.done(Quarantine)
    assert not world.done(DrainNode)
    assert not world.reboots()


def test_unknown_is_acted_upon_after_its_tolerance_as_if_bad() -> None:
    world = World.of(node("ip-1", finding(HUNG)), node("ip-2"), node("ip-3"))
    world.turn()
    assert world.phase() is Phase.TOLERATING
    world.turn(minutes(5))
    assert world.phase() is Phase.QUARANTINED


def test_a_silent_agent_opens_an_episode_by_the_controllers_own_clock() -> None:
    world = World.of(node("ip-1", agent_fresh=False), node("ip-2"), node("ip-3"))
    world.turn()
    assert world.status().findings[0].fault == "AgentSilent"
    world.turn(minutes(5))
    assert world.phase() is Phase.QUARANTINED


def test_what_a_job_does_to_itself_never_touches_the_node() -> None:
    world = World.of(node("ip-1", finding(APP)), policies=[policy(rules=(Rule(name="all", faults=("*",)),))])
    world.turns(3)
    assert not world.episodes


def test_a_rule_that_restarts_the_workload_does_that_and_nothing_to_the_node() -> None:
    rule = Rule(name="apps", faults=("Application*",), ladder=(Rung(remedy=Remedy.RESTART_WORKLOAD, deadline="5m"),))
    world = World.of(node("ip-1", finding(APP)), policies=[policy(rules=(rule,))])
    world.turn()
    assert world.done(RestartPods)
    assert not world.done(Quarantine)
    world.says("ip-1")
    world.turns(2)
    assert world.phase() is Phase.CLEARED


def test_a_suspicion_keeps_running_work_and_is_tested_when_the_work_has_ended() -> None:
    world = World.of(node("ip-1", finding(BUS, suspected=True)), node("ip-2"), node("ip-3"))
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(3)
    assert world.phase() is Phase.SUSPECTED
    assert not world.done(DrainNode)
    world.change("ip-1", pods=PodsView(to_evict=0, counted_at=world.now + dt.timedelta(seconds=1)))
    world.turn(dt.timedelta(seconds=10))
    assert world.phase() is Phase.PROVING


def test_while_others_are_at_work_nothing_is_begun_and_then_it_goes_on() -> None:
    world = world_with(PATIENT)
    world.turn()
    world.change("ip-1", taints_of_others=("karpenter.sh/disrupted",))
    world.turn(minutes(6))
    assert world.phase() is Phase.MAINTENANCE
    assert not world.effects
    world.change("ip-1", taints_of_others=())
    world.turn()
    assert world.phase() is Phase.QUARANTINED


def test_maintenance_of_others_has_a_deadline() -> None:
    world = world_with(PATIENT)
    world.turn()
    world.change("ip-1", taints_of_others=("karpenter.sh/disrupted",))
    world.turn(minutes(6))
    world.turn(minutes(15))
    assert world.phase() is Phase.NEEDS_PERSON


def test_a_stronger_fault_raises_the_rung_of_the_same_episode() -> None:
    world = world_with(SLOW)
    world.turns(2)
    world.says("ip-1", finding(), finding(REMAP))
    world.turns(2)
    world.turn(minutes(5))
    world.turns(2)
    assert [attempt.remedy for attempt in world.status().attempts] == [Remedy.REPLACE]
    assert len(world.episodes) == 1


def test_a_new_node_with_a_fault_is_quarantined_without_any_budget() -> None:
    world = World.of(node("ip-1", finding(), unproven=True), node("ip-2", cordoned=True))
    world.turn()
    assert world.phase() is Phase.QUARANTINED
    assert not world.done(Restore)


def test_a_job_that_goes_on_failing_never_takes_its_machine_with_it() -> None:
    """The ladder goes on to reboot and replace for the hardware's sake; what a job did climbs no further."""
    world = World.of(node("ip-1", finding(APP)))
    world.turns(80, minutes(1))
    assert [it.remedy for it in world.status().attempts] == [Remedy.RESTART_WORKLOAD]
    assert world.phase() is Phase.NEEDS_PERSON
    assert not world.done(Operate)
    world.says("ip-1")
    world.turns(5, minutes(1))
    assert world.phase() is Phase.CLEARED


def test_a_fault_of_the_machine_found_while_a_job_is_restarted_goes_the_whole_way() -> None:
    """Through budget, quarantine and drain: the restart of a job has taken nothing out."""
    world = World.of(node("ip-1", finding(APP)), node("ip-2", cordoned=True))
    world.turn()
    assert world.phase() is Phase.REMEDYING
    world.says("ip-1", finding(APP), finding(BUS))
    world.turns(10, minutes(1))
    assert world.phase() is Phase.TOLERATING
    assert world.status().hold is not None
    assert not world.reboots()
    world.change("ip-2", cordoned=False)
    world.turns(5)
    assert world.nodes["ip-1"].our_taint
    assert world.reboots()


def test_nobody_is_sent_away_from_a_node_against_which_nothing_is_said_any_more() -> None:
    """S1: the drain stops with the fault, and not only when the node has been quiet for long enough."""
    world = World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"))
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(3)
    drained = len(world.done(DrainNode))
    assert drained
    world.says("ip-1")
    world.turns(3)
    assert world.phase() is Phase.DRAINING
    assert len(world.done(DrainNode)) == drained
    world.says("ip-1", finding())
    world.turn()
    assert len(world.done(DrainNode)) > drained
