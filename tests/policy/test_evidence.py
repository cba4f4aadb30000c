"""What counts as evidence against the node as it is now: its UID, its boot, and who says it."""

import msgspec

from fleetwell.api.incident import IncidentFinding, Phase
from fleetwell.api.policy import Remedy, Rule, Rung
from fleetwell.health.vocabulary import HOST, Recovery, Verdict
from fleetwell.policy.evidence import KEPT, PROOF_FAILED, PROOF_UNFINISHED, merged, of_this_boot, said_now, standing
from fleetwell.policy.evidence import with_proof as and_proof
from fleetwell.policy.instructions import RestartPods
from policy.builders import APP, BUS, HUNG, REMAP, START, finding, minutes, node, policy, spec
from policy.world import World

APPS = Rule(name="apps", faults=("Application*",), tolerate="5m", ladder=(Rung(remedy=Remedy.RESTART_WORKLOAD),))


def known(fault: str = BUS, component: str = "gpu/GPU-1", **changes: object) -> IncidentFinding:
    recovery = Recovery.REPLACE if fault == REMAP else Recovery.REBOOT
    base = IncidentFinding(fault=fault, component=component, verdict=Verdict.BAD, recovery=recovery, boot_id="boot-1")
    return msgspec.structs.replace(base, **changes)


def test_what_was_found_is_taken_down_with_its_first_line_and_the_controllers_time() -> None:
    here = node("ip-1", finding(evidence=("the first line", "a later line"), suspected=True))
    (said,) = said_now(here, START)
    assert said == known(evidence="the first line", first_seen=START, suspected=True)


def test_a_finding_without_a_boot_is_of_the_boot_that_its_agent_speaks_for() -> None:
    (said,) = said_now(node("ip-1", finding(boot="")))
    assert said.boot_id == "boot-1"


def test_what_the_agent_of_a_machine_before_wrote_is_nothing_against_this_one() -> None:
    before = node("ip-1", finding()).health
    assert not said_now(node("ip-1", uid="another", health=before))


def test_an_agent_that_was_heard_and_is_silent_now_speaks_against_its_node_from_now_on() -> None:
    (said,) = said_now(node("ip-1", agent_fresh=False), START)
    assert (said.fault, said.component, said.verdict) == ("AgentSilent", HOST, Verdict.UNKNOWN)
    assert said.first_seen == START
    assert said.boot_id == "boot-1"
    assert not said_now(node("ip-1", agent_fresh=False, agent_known=False), START)


def test_a_node_that_tells_no_boot_has_no_evidence_of_this_boot() -> None:
    assert of_this_boot(known(), node("ip-1"))
    assert not of_this_boot(known(boot_id=""), node("ip-1", boot_id=""))


def test_a_fault_that_is_said_again_keeps_its_first_sight() -> None:
    (joined,) = merged([known(first_seen=START)], [known(first_seen=START + minutes(5))])
    assert joined.first_seen == START


def test_a_fault_that_is_not_said_any_more_is_kept_as_past() -> None:
    past, now = merged([known()], [known(HUNG)])
    assert (past.fault, past.active) == (BUS, False)
    assert (now.fault, now.active) == (HUNG, True)


def test_of_too_many_findings_what_is_said_now_and_the_strongest_are_kept() -> None:
    past = [known(component=f"gpu/GPU-{number}") for number in range(KEPT)]
    strong = known(REMAP)
    kept = merged([*past, strong], [known(component="gpu/GPU-now")])
    assert len(kept) == KEPT
    assert kept[0].component == "gpu/GPU-now"
    assert (kept[1].fault, kept[1].active) == (REMAP, False)


def test_the_outcome_of_a_proof_stands_until_the_next_proof_has_one() -> None:
    failed = known(PROOF_FAILED, HOST)
    assert merged([failed], []) == (failed,)
    unfinished = known(PROOF_UNFINISHED, HOST)
    assert and_proof([known(), failed], unfinished) == (known(), unfinished)


def test_what_an_earlier_boot_said_of_a_job_is_nothing_that_must_be_looked_at_again() -> None:
    rules = spec(rules=(Rule(name="all", faults=("*",), ladder=(Rung(remedy=Remedy.RESTART_WORKLOAD),)),))
    crash = known(APP, recovery=Recovery.RESTART_WORKLOAD, boot_id="boot-0", verdict=Verdict.CONFIG)
    hard = known(boot_id="boot-0")
    stands = standing([crash, hard], node("ip-1"), rules)
    assert [ask.finding for ask in stands.stale] == [hard]
    assert not stands.now


def test_what_a_job_does_to_itself_is_tolerated_as_long_as_its_rule_says() -> None:
    world = World.of(node("ip-1", finding(APP)), policies=[policy(rules=(APPS,))])
    world.turns(2)
    assert world.phase() is Phase.TOLERATING
    assert not world.done(RestartPods)
    world.turn(minutes(5))
    assert world.done(RestartPods)
