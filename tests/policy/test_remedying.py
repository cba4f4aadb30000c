"""The ground of a remedy: what takes it away between the fault and the effect, and what counts as having helped."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from fleetwell.api.incident import AttemptResult, Phase
from fleetwell.api.node_operation import OperationPhase
from fleetwell.api.policy import DisruptionBudget, DrainRule, Mode, Pace, Remedy, Rule, Rung
from fleetwell.health.vocabulary import Recovery
from fleetwell.policy.budget import admit, pace_of
from fleetwell.policy.instructions import DrainNode, Granted, Quarantine, RequestKind
from fleetwell.policy.ladder import answer, decide
from fleetwell.policy.view import PodsView, ReplacementView
from policy.builders import APP, BUS, GPU, HUNG, REMAP, UNKNOWN_XID, command, finding, minutes, node, policy
from policy.world import World, to_proving, to_remedying

APPS = Rule(name="apps", faults=("Application*",), ladder=(Rung(remedy=Remedy.RESTART_WORKLOAD, deadline="5m"),))


def bad_world(*findings: Any, **changes: Any) -> World:
    bad = node("ip-1", *(findings or (finding(),)))
    return World.of(bad, node("ip-2"), node("ip-3"), policies=[policy(**changes)])


def drained_and_waiting(**changes: Any) -> World:
    """A drained node whose remedy waits because the policy is paused."""
    world = bad_world(**changes)
    world.turns(2)
    world.policies = [policy(mode=Mode.PAUSED, **changes)]
    world.turns(2)
    assert world.phase() is Phase.REMEDYING, world.story()
    assert not world.status().attempts
    return world


def go_on(world: World) -> None:
    world.policies = [policy()]
    world.turn()


def test_a_node_that_tells_no_boot_any_more_is_left_to_a_person() -> None:
    world = drained_and_waiting()
    world.change("ip-1", boot_id="")
    go_on(world)
    assert world.phase() is Phase.NEEDS_PERSON
    assert "the node tells no boot id" in world.story()
    assert not world.status().attempts


def test_a_node_that_restarted_before_its_remedy_is_tested_and_not_repaired() -> None:
    world = drained_and_waiting()
    world.boots("ip-1", "boot-2", finding(boot="boot-1"))
    go_on(world)
    assert world.phase() is Phase.PROVING
    assert "it is tested, not repaired" in world.story()


def test_a_fault_that_is_there_on_the_new_boot_too_is_repaired_on_that_boot() -> None:
    world = drained_and_waiting()
    world.boots("ip-1", "boot-2", finding(boot="boot-2"))
    go_on(world)
    assert [it.expected_boot_id for it in world.status().attempts] == ["boot-2"]


def test_what_could_not_be_understood_is_no_ground_for_a_remedy_after_a_drain_either() -> None:
    world = drained_and_waiting()
    world.says("ip-1", finding(UNKNOWN_XID))
    go_on(world)
    assert world.phase() is Phase.NEEDS_PERSON
    assert "could not be understood, which is no ground for a remedy" in world.story()


def test_no_remedy_begins_while_others_are_at_work() -> None:
    world = drained_and_waiting()
    world.change("ip-1", taints_of_others=("medik8s.io/remediation",))
    go_on(world)
    assert world.phase() is Phase.MAINTENANCE
    assert not world.status().attempts
    world.change("ip-1", taints_of_others=())
    world.turn()
    assert [it.remedy for it in world.status().attempts] == [Remedy.REBOOT]


def test_what_could_not_be_told_is_repaired_as_if_it_were_bad() -> None:
    world = bad_world(finding(HUNG))
    world.turn()
    world.turn(minutes(5))
    world.turns(4)
    assert [it.remedy for it in world.status().attempts] == [Remedy.REBOOT]


def test_leave_to_quarantine_that_comes_after_the_fault_is_gone_takes_nothing() -> None:
    world = bad_world(budget=DisruptionBudget(max_unavailable=0))
    world.turn()
    episode = world.episodes["inc-1"]
    step = decide(episode, world.around(episode), world.now)
    assert step.request is not None
    assert step.request.kind is RequestKind.QUARANTINE
    gone = replace(episode, status=structs.replace(episode.status, findings=()))
    assert answer(gone, step.request, Granted(), world.around(gone), world.now).quarantine is None
    taken = answer(episode, step.request, Granted(), world.around(episode), world.now)
    assert taken.quarantine is not None
    assert taken.boot_id == "boot-1"


@pytest.mark.parametrize(("suspected", "step"), [(False, "drain"), (True, "the running work's end")])
def test_the_quarantine_announces_when_the_work_has_to_go(suspected: bool, step: str) -> None:
    rule = Rule(name="slow", faults=("Gpu*",), drain=DrainRule(after="5m"))
    world = bad_world(finding(BUS, suspected=suspected), rules=(rule,))
    world.turn()
    coming = world.status().next
    assert coming is not None
    assert (coming.step, coming.at) == (step, world.now + minutes(5))
    assert world.status().timeline.quarantined == world.now


def test_a_quarantined_node_of_which_only_an_earlier_boots_faults_are_said_is_tested() -> None:
    world = bad_world(rules=(Rule(name="slow", faults=("Gpu*",), drain=DrainRule(after="5m")),))
    world.turns(2)
    world.says("ip-1", finding(boot="boot-0"))
    world.turn()
    assert world.phase() is Phase.PROVING
    assert "nothing is known against this boot" in world.story()


def test_a_fault_that_is_tolerated_begins_to_be_waited_for_anew_when_the_node_restarts_by_itself() -> None:
    world = bad_world(rules=(Rule(name="patient", faults=("Gpu*",), tolerate="5m"),))
    world.turn()
    world.boots("ip-1", "boot-2", finding(boot="boot-1"))
    world.turn(minutes(1))
    assert world.status().since == world.now
    assert world.status().boot_id == "boot-2"
    assert "the node restarted by itself" in world.story()


def test_an_approval_lets_a_suspects_work_be_drained_at_its_deadline() -> None:
    rule = Rule(name="slow", faults=("Gpu*",), drain=DrainRule(deadline="10m"))
    world = bad_world(finding(BUS, suspected=True), rules=(rule,))
    world.change("ip-1", pods=PodsView(to_evict=1))
    world.turns(2)
    world.turn(minutes(10))
    assert world.phase() is Phase.SUSPECTED
    world.tell("inc-1", approve=command(world.now))
    world.turns(2)
    assert world.done(DrainNode)


def test_what_cannot_be_told_on_the_new_boot_holds_the_proof_and_then_counts_as_a_failed_remedy() -> None:
    world = bad_world()
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.SUCCEEDED)
    world.boots("ip-1", "boot-2")
    world.says("ip-1", finding(HUNG, boot="boot-2"), settled=True)
    world.turns(3)
    assert world.phase() is Phase.PROVING
    assert not world.status().proofs
    coming = world.status().next
    assert coming is not None
    assert coming.step == "proof, once whole (something could not be told yet)"
    world.turn(minutes(15))
    assert world.status().attempts[0].result is AttemptResult.FAILED
    assert world.status().attempts[0].ended_at is not None


def test_a_failed_proof_asks_for_no_less_than_the_fault_did() -> None:
    world = bad_world(finding(REMAP))
    world.turns(2)
    world.boots("ip-1", "boot-2")
    world.turn()
    assert world.phase() is Phase.PROVING
    world.turn()
    world.operation("inc-1-p1", OperationPhase.FAILED)
    world.turn(minutes(10))
    assert world.status().recovery is Recovery.REPLACE
    world.turns(3)
    assert [it.remedy for it in world.status().attempts] == [Remedy.REPLACE]


def test_a_new_boot_without_an_answer_of_the_agent_is_tested_and_the_attempt_uncertain() -> None:
    world = bad_world()
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.RUNNING)
    world.turn()
    assert world.status().attempts[0].result is AttemptResult.RUNNING
    world.boots("ip-1", "boot-2")
    world.turn(minutes(10))
    assert world.status().attempts[0].result is AttemptResult.UNCERTAIN
    assert world.phase() is Phase.PROVING


@pytest.mark.parametrize(("running", "said"), [(True, "it was Running"), (False, "nobody took it")])
def test_an_attempt_without_an_end_says_how_far_it_came(running: bool, said: str) -> None:
    world = bad_world()
    to_remedying(world)
    if running:
        world.operation("inc-1-a1", OperationPhase.RUNNING)
    else:
        del world.operations["inc-1-a1"]
        world.obey = lambda _: False
    world.turn(minutes(10))
    assert world.status().attempts[0].detail == f"no end by the deadline: {said}"


def test_a_provider_that_failed_without_a_word_is_told_so() -> None:
    world = bad_world(finding(REMAP))
    to_remedying(world)
    world.orders["inc-1-a1"] = ReplacementView(name="inc-1-a1", state="Failed")
    world.turn()
    assert world.status().attempts[0].detail == "the provider says that it failed"


def test_a_job_is_restarted_for_what_is_said_of_its_own_component() -> None:
    world = World.of(node("ip-1", finding(APP)), policies=[policy(rules=(APPS,))])
    world.turns(2)
    world.says("ip-1", finding(APP, "gpu/GPU-2"))
    world.turn()
    assert world.status().attempts[0].result is AttemptResult.SUCCEEDED
    assert world.status().attempts[0].component == GPU


def test_a_remedy_that_a_person_holds_holds_the_pace_until_its_deadline_and_no_longer() -> None:
    world = bad_world(pace=Pace(max_concurrent=1))
    to_remedying(world)
    assert pace_of("train", world.fleet(), world.now).running == ("ip-1",)
    world.operation("inc-1-a1", OperationPhase.RUNNING)
    world.tell("inc-1", hold=command(world.now))
    world.obey = lambda _: False
    world.turn()
    assert world.phase() is Phase.HELD
    assert pace_of("train", world.fleet(), world.now).running == ("ip-1",)
    assert pace_of("train", world.fleet(), world.status().attempts[0].deadline).running == ()


def test_leave_is_not_given_for_a_node_that_the_fleet_does_not_have() -> None:
    world = bad_world(budget=DisruptionBudget(max_unavailable=0))
    world.turn()
    (request,) = world.requests
    given = admit(
        [replace(request, node="ip-99"), replace(request, episode="other", pool="none")], world.fleet(), world.now
    )
    holds = [given["inc-1"], given["other"]]
    assert [getattr(hold, "reason", "") for hold in holds] == ["Precondition", "Precondition"]
    assert getattr(holds[0], "message", "") == "node ip-99 is not in pool train of the fleet as it is known now"


def test_a_request_that_is_asked_again_is_looked_at_again_soon() -> None:
    world = bad_world(budget=DisruptionBudget(max_unavailable=0))
    world.turn()
    episode = world.episodes["inc-1"]
    step = decide(episode, world.around(episode), world.now)
    assert step.wake is not None
    assert step.wake > world.now


def test_dry_run_puts_no_mark_back_that_somebody_took_away() -> None:
    world = bad_world(rules=(Rule(name="slow", faults=("Gpu*",), drain=DrainRule(after="5m")),))
    world.turns(2)
    world.policies = [policy(mode=Mode.DRY_RUN)]
    world.change("ip-1", our_taint=False, taint_removed_by="kubelet")
    world.turns(2)
    assert not world.nodes["ip-1"].our_taint
    assert len(world.done(Quarantine)) == 1


def test_a_fault_that_is_still_there_ends_the_proof_of_a_node_that_was_never_taken() -> None:
    world = bad_world(rules=(Rule(name="patient", faults=("*",), tolerate="1h"),))
    world.turn()
    waiting = structs.replace(world.status(), phase=Phase.PROVING)
    episode = world.write(world.episodes["inc-1"], waiting)
    assert decide(episode, world.around(episode), world.now).status.phase is Phase.TOLERATING
    world.says("ip-1")
    episode = world.episodes["inc-1"]
    assert decide(episode, world.around(episode), world.now).status.phase is Phase.CLEARED


def test_a_proof_of_a_boot_that_is_over_is_not_asked_for_again() -> None:
    world = bad_world()
    to_proving(world)
    del world.operations["inc-1-p1"]
    world.change("ip-1", boot_id="boot-3")
    world.turn()
    assert "inc-1-p1" not in world.operations


def test_an_attempt_that_has_ended_is_not_carried_out_again_while_the_next_one_waits() -> None:
    twice = Rule(name="twice", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.REBOOT, attempts=2),))
    world = bad_world(rules=(twice,))
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.FAILED)
    world.policies = [policy(mode=Mode.PAUSED, rules=(twice,))]
    world.turn()
    assert world.status().attempts[-1].result is AttemptResult.FAILED
    world.operations.clear()
    world.turns(2)
    assert not world.operations
    assert len(world.reboots()) == 1


def test_a_retry_forgets_what_was_tried_and_leaves_what_is_under_way() -> None:
    one = Rule(name="one", faults=("Gpu*",), ladder=(Rung(remedy=Remedy.REBOOT),))
    world = bad_world(rules=(one,))
    to_remedying(world)
    begun = world.status().since
    world.tell("inc-1", retry=command(world.now))
    world.turn(minutes(1))
    assert world.phase() is Phase.REMEDYING
    assert world.status().since == begun
    assert "begun again by ada: because" in world.story()
    world.operation("inc-1-a1", OperationPhase.FAILED)
    world.turn()
    assert world.phase() is Phase.NEEDS_PERSON
    assert len(world.reboots()) == 1


def test_what_a_job_may_have_done_to_the_hardware_again_and_again_is_a_suspicion_against_the_node() -> None:
    rule = Rule(name="all", faults=("*",), drain=DrainRule(deadline="10m"))
    world = bad_world(finding(APP, suspected=True), rules=(rule,))
    world.turns(2)
    assert world.done(Quarantine)
    world.change("ip-1", pods=PodsView(to_evict=0, counted_at=world.now + minutes(1)))
    world.turn()
    assert world.phase() is Phase.PROVING


def test_a_quarantined_node_that_recovered_and_fails_again_while_proving_is_drained_first() -> None:
    world = bad_world(rules=(Rule(name="slow", faults=("Gpu*",), drain=DrainRule(after="5m")),))
    world.turns(2)
    world.says("ip-1")
    world.turn()
    world.turn(minutes(2))
    assert world.phase() is Phase.PROVING
    world.says("ip-1", finding())
    world.turn()
    assert world.phase() is Phase.QUARANTINED


def test_that_a_restarting_nodes_agent_is_silent_is_no_news_but_elsewhere_it_is() -> None:
    world = bad_world()
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.SUCCEEDED)
    world.change("ip-1", boot_id="boot-2", agent_fresh=False)
    world.turns(2)
    assert world.phase() is Phase.PROVING
    assert "found: " not in world.story()
    world = bad_world(rules=(Rule(name="patient", faults=("*",), tolerate="1h"),))
    world.turn()
    world.change("ip-1", agent_fresh=False)
    world.turn()
    assert "found: AgentSilent on host" in world.story()


def test_a_finding_without_any_line_is_taken_down_too() -> None:
    world = bad_world(finding(evidence=()))
    world.turn()
    assert world.status().findings[0].evidence == ""


def test_a_machine_in_line_to_be_replaced_after_a_reboot_did_not_help_is_not_reserved_any_more() -> None:
    world = bad_world()
    to_remedying(world)
    marks: list[bool] = []

    def note(it: object) -> bool:
        if isinstance(it, Quarantine):
            marks.append(it.reserve)
        return True

    world.obey = note
    world.turn()
    world.operation("inc-1-a1", OperationPhase.FAILED)
    world.turns(2)
    assert [it.remedy for it in world.status().attempts] == [Remedy.REBOOT, Remedy.REPLACE]
    assert marks[0]
    assert not marks[-1]


def test_without_a_policy_the_mark_of_an_ended_episode_goes_and_nothing_else_is_done() -> None:
    world = bad_world()
    to_remedying(world)
    world.policies = []
    effects = len(world.effects)
    world.turns(2)
    assert [type(it).__name__ for it in world.effects[effects:]] == ["Restore", "CancelOperation"]
