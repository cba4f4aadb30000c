"""What stands in the way of a drain, and of what comes after it."""

from fleetwell.api.incident import Phase
from fleetwell.api.policy import DrainRule, Mode, Remedy, Rule, Rung
from fleetwell.health.vocabulary import Recovery
from fleetwell.policy.instructions import DrainNode, Operate
from fleetwell.policy.view import PodsView
from policy.builders import LADDER, finding, minutes, node, policy
from policy.world import World

PROBLEM = "DaemonSet kube-system/nvidia-device-plugin does not tolerate our taint"
RESET = Rule(name="reset", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.RESET_GPU), *LADDER))


def draining(rule: Rule | None = None, to_evict: int = 1, stuck: int = 0, fault: str = "GpuFallenOffBus") -> World:
    rules = (rule or Rule(name="now", faults=("Gpu*",), drain=DrainRule(deadline="10m"), ladder=LADDER),)
    recovery = Recovery.RESET_GPU if rule is RESET else Recovery.REBOOT
    bad = node("ip-1", finding(fault, recovery=recovery))
    world = World.of(bad, node("ip-2"), node("ip-3"), policies=[policy(rules=rules)])
    world.change("ip-1", pods=PodsView(to_evict=to_evict, stuck_terminating=stuck, blocked_by="pod ml/zombie"))
    world.turns(5)
    return world


def test_a_pod_that_does_not_terminate_blocks_a_reset_because_it_holds_the_gpu_open() -> None:
    world = draining(RESET, to_evict=1, stuck=1)
    assert world.phase() is Phase.DRAINING
    world.change("ip-1", pods=PodsView(to_evict=0))
    world.turns(3)
    assert [it.remedy for it in world.status().attempts] == [Remedy.RESET_GPU]
    assert world.done(Operate)[-1].spec.component == "gpu/GPU-1"


def test_going_to_dry_run_in_the_middle_of_a_drain_evicts_nothing_more_and_says_so() -> None:
    world = draining()
    drains = len(world.done(DrainNode))
    world.policies = [policy(mode=Mode.DRY_RUN)]
    world.change("ip-1", pods=PodsView(to_evict=0, counted_at=world.now + minutes(1)))
    world.turns(3)
    hold = world.status().hold
    assert hold is not None
    assert hold.reason == "DryRun"
    assert "would go on draining the node" in hold.message
    assert world.phase() is Phase.DRAINING
    assert len(world.done(DrainNode)) == drains


def test_a_drain_that_a_problem_held_up_goes_on_when_the_problem_is_gone() -> None:
    world = draining()
    world.problem = PROBLEM
    world.turn()
    hold = world.status().hold
    assert hold is not None
    assert hold.reason == "Precondition"
    world.problem = ""
    world.turn()
    assert world.status().hold is None


def test_paused_finishes_a_drain_that_was_begun() -> None:
    world = draining()
    drains = len(world.done(DrainNode))
    world.policies = [policy(mode=Mode.PAUSED)]
    world.turn()
    assert world.phase() is Phase.DRAINING
    assert len(world.done(DrainNode)) > drains


def test_pods_that_were_counted_before_the_drain_began_do_not_end_it() -> None:
    world = draining()
    drain = world.status().drain
    assert drain is not None
    world.obey = lambda it: not isinstance(it, DrainNode)
    world.change("ip-1", pods=PodsView(to_evict=0, counted_at=drain.started_at))
    world.turn()
    assert world.phase() is Phase.DRAINING


def test_a_drain_tells_how_many_pods_remain_and_what_holds_them() -> None:
    drain = draining(to_evict=2).status().drain
    assert drain is not None
    assert (drain.remaining, drain.blocked_by) == (2, "pod ml/zombie")


def test_a_drain_that_nobody_could_count_holds_at_its_deadline_and_says_that() -> None:
    bad = node("ip-1", finding())
    world = World.of(bad, node("ip-2"), node("ip-3"))
    world.obey = lambda it: not isinstance(it, DrainNode)
    world.turns(3)
    world.change("ip-1", pods=None)
    world.turn(minutes(10))
    hold = world.status().hold
    assert hold is not None
    assert hold.message == "pods that were not counted remain at the drain's deadline"


def test_an_overdue_drain_says_how_many_pods_are_left_and_what_it_waits_for() -> None:
    world = draining(to_evict=2)
    world.turn(minutes(10))
    hold, step = world.status().hold, world.status().next
    assert hold is not None
    assert hold.message == "2 pods remain at the drain's deadline: pod ml/zombie"
    assert step is not None
    assert step.step == "the remedy, once they are gone or a person approves"
