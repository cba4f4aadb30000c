"""Around the phases: whose node it is, what stays on record, what is said, and when a person is asked."""

from dataclasses import replace
from typing import Any

from fleetwell.api.incident import AttemptResult, Phase
from fleetwell.api.node_health import Machine, NodeHealthStatus
from fleetwell.api.node_operation import OperationPhase, ProofResult
from fleetwell.api.policy import Mode, Proof, ProofLevel, Remedy, Replacement, Rule, Rung
from fleetwell.health.vocabulary import HOST, Verdict
from fleetwell.policy.instructions import Operate, OrderReplacement, Quarantine, RestartPods
from fleetwell.policy.ladder import decide
from fleetwell.policy.view import NOT_ORDERED, PodsView, ReplacementView
from policy.builders import APP, BUS, HARD, LADDER, REMAP, TEMPLATE, command, finding, minutes, node, policy
from policy.world import World, to_proving, to_remedying

TWICE = Rule(name="twice", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.REPLACE, attempts=2, deadline="20m"),))
PATIENT = Rule(name="patient", faults=("*",), tolerate="5m", ladder=LADDER)
APPS = Rule(name="apps", faults=("Application*",), ladder=(Rung(remedy=Remedy.RESTART_WORKLOAD, deadline="5m"),))
BAD = ProofResult(check="memory", verdict="BAD", detail="GPU-1: 3 words differ")


def bad_world(*rules: Rule, **changes: Any) -> World:
    changes |= {"rules": rules} if rules else {}
    return World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"), policies=[policy(**changes)])


def test_another_machine_under_the_same_name_is_not_the_episodes_node() -> None:
    world = bad_world()
    world.turns(2)
    episode = world.episodes["inc-1"]
    around = replace(world.around(episode), node=node("ip-1", finding(), uid="another"))
    assert decide(episode, around, world.now).status.phase is Phase.GONE


def test_the_machine_stays_on_record_as_it_was_known_first() -> None:
    world = bad_world()
    world.turn()
    first = world.status().machine
    assert first.provider_id
    other = Machine(provider_id="aws:///i-2")
    health = NodeHealthStatus(node_uid="uid-ip-1", boot_id="boot-1", machine=other, findings=(finding(),))
    world.change("ip-1", health=health)
    world.turn()
    assert world.status().machine == first


def test_a_machine_that_no_agent_told_is_replaced_by_what_its_node_says_of_it() -> None:
    world = World.of(node("ip-1", finding(REMAP), machine=Machine(provider_id="aws:///i-1")), node("ip-2"))
    to_remedying(world)
    assert world.done(OrderReplacement)[0].provider_id == "aws:///i-1"


def test_a_fault_that_joins_is_said_once_also_beside_another_on_the_same_component() -> None:
    world = bad_world(PATIENT)
    world.turns(2)
    world.says("ip-1", finding(), finding(REMAP))
    world.turns(2)
    world.says("ip-1", finding())
    world.turns(2)
    assert world.story().count("found: ") == 1
    assert "found: GpuRowRemapFailed on gpu/GPU-1" in world.story()


def test_what_kubectl_shows_follows_what_is_waited_for() -> None:
    world = bad_world(PATIENT)
    world.turn()
    assert world.status().summary == "GpuFallenOffBus on gpu/GPU-1; next: quarantine"
    world.policies = [policy(mode=Mode.DRY_RUN)]
    world.turn(minutes(5))
    assert world.status().summary.startswith("GpuFallenOffBus on gpu/GPU-1; held: would quarantine the node")
    world.policies = []
    world.turn()
    assert world.status().summary == "GpuFallenOffBus on gpu/GPU-1; released: no policy governs the node any more"


def test_dry_run_in_the_middle_of_an_attempt_begins_no_effect() -> None:
    world = bad_world()
    world.obey = lambda it: not isinstance(it, Operate)
    to_remedying(world)
    world.obey = lambda _: True
    world.policies = [policy(mode=Mode.DRY_RUN)]
    world.turns(2)
    assert not world.reboots()


def test_the_story_says_what_was_quarantined_for_how_long_it_was_bad_and_what_was_tolerated() -> None:
    world = bad_world(PATIENT)
    world.turn()
    world.turn(minutes(6))
    assert "quarantined: GpuFallenOffBus on gpu/GPU-1, bad for 6m of 5m tolerated" in world.story()


def test_the_ladder_may_end_with_a_person() -> None:
    world = bad_world(Rule(name="look", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.PERSON),)))
    world.turns(6)
    assert world.phase() is Phase.NEEDS_PERSON
    assert "the ladder says that a person is to look" in world.story()


def test_what_the_provider_says_of_an_earlier_order_does_not_end_the_next_one() -> None:
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"), policies=[policy(rules=(TWICE,))])
    to_remedying(world)
    world.obey = lambda it: not isinstance(it, OrderReplacement)
    world.orders["inc-1-a1"] = ReplacementView(name="inc-1-a1", state="Failed", detail="no capacity")
    world.turns(3)
    assert [it.result for it in world.status().attempts] == [AttemptResult.FAILED, AttemptResult.INTENDED]
    world.turn(minutes(20))
    assert world.status().attempts[1].detail == "the old node is still there"


def test_a_replacement_that_was_called_off_is_no_order_of_ours() -> None:
    world = World.of(node("ip-1", finding(REMAP)), node("ip-2"), node("ip-3"))
    world.obey = lambda it: not isinstance(it, OrderReplacement)
    to_remedying(world)
    world.orders["inc-1-a1"] = ReplacementView(name="inc-1-a1", state=NOT_ORDERED)
    world.tell("inc-1", hold=command(world.now))
    world.turn()
    world.tell("inc-1", hold=None)
    world.policies = [policy(mode=Mode.PAUSED)]
    world.turn()
    assert [it.result for it in world.status().attempts] == [AttemptResult.CANCELLED]
    del world.nodes["ip-1"]
    world.turn()
    assert world.phase() is Phase.GONE


def test_the_pool_has_as_long_to_get_its_capacity_back_as_the_policy_says() -> None:
    patient = Replacement(provider="template", template=TEMPLATE, capacity_deadline="2h")
    bad = node("ip-1", finding(REMAP))
    world = World.of(bad, node("ip-2"), node("ip-3"), policies=[policy(replacement=patient)])
    to_remedying(world)
    del world.nodes["ip-1"]
    world.turn()
    world.turn(minutes(119))
    assert world.phase() is Phase.REMEDYING
    world.turn(minutes(1))
    assert world.phase() is Phase.NEEDS_PERSON


def test_a_job_that_cannot_be_restarted_in_time_is_left_to_a_person_and_the_node_is_not_touched() -> None:
    world = World.of(node("ip-1", finding(APP)), policies=[policy(rules=(APPS,))])
    world.turns(3)
    assert world.status().attempts[0].result is AttemptResult.INTENDED
    world.turn(minutes(5))
    assert world.status().attempts[0].detail == "the fault is still said"
    assert world.phase() is Phase.NEEDS_PERSON
    assert {type(it) for it in world.effects} == {RestartPods}
    world.says("ip-1")
    world.turn()
    assert world.phase() is Phase.NEEDS_PERSON
    world.turn(minutes(2))
    assert world.phase() in {Phase.CLEARED, Phase.PROVING}
    world.turn()
    assert world.phase() is Phase.CLEARED


def test_a_fault_seen_really_ends_the_waiting_for_a_suspects_work() -> None:
    world = World.of(node("ip-1", finding(BUS, suspected=True)), node("ip-2"), node("ip-3"))
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(3)
    world.says("ip-1", finding())
    world.turn()
    assert "more than a suspicion now" in world.story()
    assert world.phase() is Phase.DRAINING


def test_a_suspect_whose_work_nobody_counted_waits() -> None:
    world = World.of(node("ip-1", finding(BUS, suspected=True), pods=None), node("ip-2"), node("ip-3"))
    world.turns(3)
    assert world.phase() is Phase.SUSPECTED


def test_a_taint_that_only_contains_the_name_of_one_by_which_others_work_is_not_theirs() -> None:
    world = bad_world()
    world.change("ip-1", taints_of_others=("example.org/not-karpenter.sh/disrupted",))
    world.turn()
    assert world.phase() is Phase.QUARANTINED
    world = bad_world()
    world.change("ip-1", taints_of_others=("aws-node-termination-handler/spot-itn",))
    world.turn()
    assert world.phase() is Phase.MAINTENANCE


def test_a_silent_agent_holds_the_proof_also_where_no_rule_names_its_silence() -> None:
    world = bad_world(HARD)
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.SUCCEEDED)
    world.boots("ip-1", "boot-2")
    world.change("ip-1", agent_fresh=False)
    world.turns(3)
    step = world.status().next
    assert world.phase() is Phase.PROVING
    assert not world.status().proofs
    assert step is not None
    assert step.step == "proof, once whole (its agent is silent)"


def test_a_failed_proof_is_a_fault_of_the_host_that_is_known_to_be_bad() -> None:
    world = bad_world()
    to_proving(world)
    world.operation("inc-1-p1", OperationPhase.FAILED, results=(BAD,))
    world.turn()
    (failed,) = (it for it in world.status().findings if it.fault == "GpuProofFailed")
    assert (failed.component, failed.verdict, failed.boot_id) == (HOST, Verdict.BAD, "boot-2")
    assert failed.evidence == "memory: GPU-1: 3 words differ"


def test_a_proof_that_ended_without_a_word_is_told_by_how_it_ended() -> None:
    world = bad_world()
    to_proving(world)
    world.operation("inc-1-p1", OperationPhase.REFUSED)
    world.turn()
    assert world.status().proofs[0].detail == "the proof ended as Refused"
    world.turn(minutes(2))
    world.operation("inc-1-p2", OperationPhase.UNCERTAIN, "the agent ended")
    world.turn()
    assert world.status().proofs[1].detail == "the agent ended"


def test_tries_to_have_a_proof_are_spread_evenly_over_its_time() -> None:
    world = bad_world(proof=Proof(level=ProofLevel.QUICK, deadline="10m"))
    to_proving(world)
    for number in (1, 2, 3):
        world.operation(f"inc-1-p{number}", OperationPhase.REFUSED)
        world.turn()
        step = world.status().next
        assert step is not None
        assert step.at - world.status().proofs[-1].started_at == minutes(2)
        world.turn(step.at - world.now)
    assert len(world.status().proofs) == 4


def test_a_drained_node_that_recovered_and_fails_again_while_proving_is_not_drained_anew() -> None:
    world = bad_world()
    world.turns(2)
    world.policies = [policy(mode=Mode.PAUSED)]
    world.turns(2)
    assert world.phase() is Phase.REMEDYING
    assert not world.status().attempts
    world.says("ip-1")
    world.turn()
    world.turn(minutes(2))
    assert world.phase() is Phase.PROVING
    world.says("ip-1", finding())
    world.turn()
    assert world.phase() is Phase.REMEDYING


def test_a_retry_before_anything_was_taken_begins_the_waiting_anew() -> None:
    world = bad_world(PATIENT)
    world.turn()
    world.change("ip-1", taints_of_others=("karpenter.sh/disrupted",))
    world.turn(minutes(1))
    world.turn(minutes(15))
    assert world.phase() is Phase.NEEDS_PERSON
    world.change("ip-1", taints_of_others=())
    world.tell("inc-1", retry=command(world.now))
    world.turn()
    assert "begun again by ada: because" in world.story()
    assert world.done(Quarantine)


def test_what_was_interrupted_is_forgotten_when_it_goes_on() -> None:
    world = bad_world(PATIENT)
    world.turn()
    world.tell("inc-1", hold=command(world.now))
    world.turn()
    hold = world.status().hold
    assert hold is not None
    assert hold.message == "held by ada: because"
    assert world.status().interrupted is Phase.TOLERATING
    world.tell("inc-1", hold=None)
    world.turn()
    assert world.phase() is Phase.TOLERATING
    assert world.status().interrupted is None


def test_a_recovery_is_announced_with_the_moment_at_which_it_counts() -> None:
    world = bad_world(PATIENT)
    world.turn()
    world.says("ip-1")
    world.turn(minutes(1))
    gone = world.now
    world.turn(minutes(1))
    step = world.status().next
    assert step is not None
    assert step.at == gone + minutes(2)
