"""What opens a finding, what ends it, and what a node is told in between."""

import msgspec
import pytest

from fleetwell.health.conditions import NOT_YET_CHECKED, Condition, transition
from fleetwell.health.stimuli import Adopt, ProbeBlind, ProbeFailed, RemedyDone, Tick
from fleetwell.health.triage import conditions, findings, settled
from fleetwell.health.vocabulary import (
    HOST,
    BootId,
    Clears,
    ConditionType,
    FaultName,
    Finding,
    Recovery,
    Snapshot,
    Source,
    Verdict,
    gpu,
)
from health.stepped_node import BOOT, FALSE, GPU0, GPU1, NEXT, TRUE, UNKNOWN, Node, seen

# --- conditions ----------------------------------------------------------------------------------------------------


def test_nothing_is_healthy_before_the_first_complete_check() -> None:
    node = Node()
    assert all(one.status is UNKNOWN and one.reason == NOT_YET_CHECKED for one in conditions(node.state, 0.0))
    node.look("nvml")
    assert node.status(ConditionType.GPU) is TRUE
    assert node.status(ConditionType.NETWORK) is UNKNOWN
    assert node.status(ConditionType.MONITORING) is UNKNOWN
    node.look("efa")
    assert {one.status for one in conditions(node.state, 0.0)} == {TRUE}


def test_a_bad_finding_makes_its_condition_false_with_the_faults_name_and_evidence() -> None:
    node = Node()
    node.looks_well()
    node.xid(79, bus="b1")
    found = node.condition()
    assert (found.status, found.reason) == (FALSE, "GpuFallenOffBus")
    assert found.message == "gpu/GPU-1: NVRM: Xid (PCI:0000:b1:00): 79"
    assert node.status(ConditionType.GPU_MEMORY) is TRUE


def test_the_worst_finding_is_the_reason_and_the_others_are_counted() -> None:
    node = Node()
    node.xid(119)
    node.xid(79, bus="b1")
    found = node.condition()
    assert found.reason == "GpuFallenOffBus"
    assert "(and 1 more)" in found.message


@pytest.mark.parametrize("number", [13, 31, 43, 45, 94, 63, 14])
def test_what_an_application_did_and_what_asks_for_nothing_moves_no_condition(number: int) -> None:
    node = Node()
    node.looks_well()
    node.xid(number, ", pid=1, name=a, x")
    assert {one.status for one in conditions(node.state, node.now)} == {TRUE}
    assert node.only.recovery.rank <= Recovery.RESTART_WORKLOAD.rank


def test_the_last_transition_moves_with_the_status_only() -> None:
    old = Condition(type=ConditionType.GPU, status=FALSE, reason="A", message="", last_transition=5.0)
    other_reason = msgspec.structs.replace(old, reason="B", last_transition=None)
    healthy = msgspec.structs.replace(other_reason, status=TRUE)
    assert transition(old, other_reason, 9.0).last_transition == 5.0
    assert transition(old, healthy, 9.0).last_transition == 9.0
    assert transition(None, healthy, 9.0).last_transition == 9.0


# --- how findings end ----------------------------------------------------------------------------------------------


def test_a_snapshot_finding_ends_after_two_oks_of_the_same_probe() -> None:
    node = Node()
    node.look("nvml", seen("GpuRowRemapFailed"))
    assert node.status(ConditionType.GPU_MEMORY) is FALSE
    node.look("nvml")
    assert node.only.fault == "GpuRowRemapFailed"
    node.look("dcgm")
    node.look("dcgm")
    assert node.only.fault == "GpuRowRemapFailed"
    change = node.look("nvml")
    assert [one.fault for one in change.closed] == ["GpuRowRemapFailed"]
    assert node.status(ConditionType.GPU_MEMORY) is TRUE


def test_of_what_one_look_says_twice_of_one_thing_the_worse_counts_in_either_order() -> None:
    said = (seen("GpuEccUncorrectable"), seen("GpuEccUncorrectable", verdict=Verdict.UNKNOWN))
    for order in (said, said[::-1]):
        node = Node()
        node.look("nvml", *order)
        assert [finding.verdict for finding in findings(node.state)] == [Verdict.BAD]


def test_a_look_that_did_not_judge_the_component_ends_nothing() -> None:
    node = Node()
    node.look("nvml", seen("GpuRowRemapFailed"))
    for _ in range(5):
        node.look("nvml", covered=(HOST, GPU1))
    assert node.only.component == GPU0


def test_oks_must_follow_one_another() -> None:
    node = Node()
    node.look("nvml", seen("GpuLost"))
    node.look("nvml")
    node.look("nvml", seen("GpuLost"))
    node.look("nvml")
    assert node.only.count == 2
    node.step(ProbeFailed(probe="nvml", fault=FaultName("ProbeCrashed"), at=node.now))
    node.look("nvml")
    assert "GpuLost" in {one.fault for one in node.findings}


def test_no_snapshot_ends_an_event_and_no_event_ends_a_snapshot() -> None:
    node = Node()
    node.xid(79)
    node.look("nvml", seen("GpuFallenOffBus"))
    assert len(node.findings) == 2
    node.looks_well(5)
    assert node.only.clears is Clears.BOOT


def test_an_event_that_ends_by_a_boot_needs_a_whole_good_look_of_that_boot() -> None:
    node = Node()
    node.xid(79)
    node.looks_well(3)
    node.reboot()
    assert node.status() is FALSE
    node.look("efa")
    node.look("nvml", seen("GpuMissing", HOST))
    assert "GpuFallenOffBus" in {one.fault for one in node.findings}
    node.look("nvml")
    assert node.findings == ()
    assert node.status() is TRUE


def test_a_look_of_an_earlier_boot_says_nothing() -> None:
    node = Node()
    node.xid(79)
    node.reboot()
    late = Snapshot(probe="nvml", at=1.0, boot_id=BOOT, covered=(HOST, GPU0))
    assert not node.step(late)
    assert len(node.findings) == 1
    assert not settled(node.state)


def test_an_event_that_asks_for_a_reset_ends_by_the_reset_and_a_passed_proof() -> None:
    node = Node()
    node.xid(119)
    node.step(RemedyDone(recovery=Recovery.NONE, proof_passed=True))
    node.step(RemedyDone(recovery=Recovery.RESET_GPU, component=GPU1, proof_passed=True))
    node.step(RemedyDone(recovery=Recovery.RESET_GPU, component=GPU0, proof_passed=False))
    assert node.only.fault == "GpuGspTimeout"
    node.step(RemedyDone(recovery=Recovery.NONE, proof_passed=True))
    assert node.findings == ()


def test_a_fault_that_came_back_after_the_reset_is_not_ended_by_its_proof() -> None:
    node = Node()
    node.xid(119)
    node.step(RemedyDone(recovery=Recovery.RESET_GPU, component=GPU0, proof_passed=False))
    node.xid(119)
    node.step(RemedyDone(recovery=Recovery.NONE, proof_passed=True))
    assert node.only.count == 2


def test_a_new_boot_stands_for_a_reset_but_not_for_new_hardware() -> None:
    node = Node()
    node.xid(119)
    node.xid(64, bus="b1")
    node.reboot()
    node.looks_well()
    assert len(node.findings) == 2
    node.step(RemedyDone(recovery=Recovery.NONE, proof_passed=True))
    assert node.only.fault == "GpuRowRemapFailed"


def test_a_riddle_ends_by_a_new_boot_and_a_proof() -> None:
    node = Node()
    node.looks_well()
    node.xid(999)
    assert node.condition().reason == "GpuUnknownXid"
    assert node.status() is UNKNOWN
    node.step(RemedyDone(recovery=Recovery.RESET_GPU, proof_passed=True))
    node.reboot()
    node.looks_well(3)
    assert node.only.fault == "GpuUnknownXid"
    node.step(RemedyDone(recovery=Recovery.NONE, proof_passed=True))
    assert node.findings == ()


def test_an_application_fault_ages_out_even_when_the_clock_steps_back() -> None:
    node = Node()
    node.step(Tick(node.now))
    node.xid(43, ", pid=1, name=a, Ch 1")
    node.step(Tick(node.now + 3590))
    assert len(node.findings) == 1
    node.step(Tick(10.0))
    node.step(Tick(3609.0))
    assert len(node.findings) == 1
    change = node.step(Tick(3611.0))
    assert [one.fault for one in change.closed] == ["ApplicationFault"]


def test_a_gpu_that_was_exchanged_is_ended_by_a_whole_look_of_the_next_boot() -> None:
    node = Node()
    node.look("nvml", seen("GpuRowRemapFailed"))
    node.reboot()
    for _ in range(2):
        node.look("nvml", covered=(HOST, GPU1, gpu("GPU-new")))
    assert node.findings == ()


def test_a_debounced_fault_counts_once_it_was_there_in_two_of_three_looks() -> None:
    node = Node()
    node.looks_well()
    node.look("nvml", seen("GpuMissing", HOST))
    assert node.findings == ()
    assert not settled(node.state)
    node.look("nvml")
    node.look("nvml", seen("GpuMissing", HOST))
    assert node.only.fault == "GpuMissing"


def test_old_sightings_fall_out_of_the_debounce() -> None:
    node = Node()
    for _ in range(4):
        node.look("nvml", seen("GpuMissing", HOST))
        node.look("nvml")
        node.look("nvml")
    assert node.findings == ()


# --- probes that do not answer -------------------------------------------------------------------------------------


def test_a_hung_probe_leaves_what_it_judges_unknown_until_it_answers_again() -> None:
    node = Node()
    node.looks_well()
    node.step(ProbeFailed(probe="nvml", fault=FaultName("ProbeHung"), at=node.now, evidence="no answer in 10 s"))
    assert node.condition().reason == "ProbeHung"
    assert [node.status(kind) for kind in ConditionType] == [UNKNOWN, UNKNOWN, UNKNOWN, TRUE, UNKNOWN, UNKNOWN]
    assert not settled(node.state)
    node.look("nvml")
    assert node.status() is UNKNOWN
    node.look("nvml")
    assert node.status() is TRUE
    assert settled(node.state)


def test_an_answer_that_finds_something_bad_still_ends_the_probes_silence() -> None:
    node = Node()
    node.step(ProbeFailed(probe="nvml", fault=FaultName("ProbeHung"), at=node.now))
    node.look("nvml", seen("GpuLost"))
    node.look("nvml", seen("GpuLost"))
    assert node.only.fault == "GpuLost"


def test_a_probe_that_never_answered_and_is_not_required_is_blind() -> None:
    node = Node()
    node.looks_well()
    node.step(ProbeFailed(probe="dcgm", fault=FaultName("ProbeHung"), at=node.now))
    node.step(ProbeBlind(probe="dcgm", at=node.now))
    assert node.findings == ()
    assert "dcgm" in node.state.blind
    assert {one.status for one in conditions(node.state, node.now)} == {TRUE}


def test_a_probe_that_answered_before_is_silent_and_not_blind() -> None:
    node = Node()
    node.looks_well()
    node.look("dcgm")
    for _ in range(2):
        node.step(ProbeBlind(probe="dcgm", at=node.now))
    assert node.only.fault == "ProbeSilent"
    assert node.status() is UNKNOWN


def test_one_crash_is_debounced() -> None:
    node = Node()
    node.looks_well()
    node.step(ProbeFailed(probe="nvml", fault=FaultName("ProbeCrashed"), at=node.now))
    assert node.status() is TRUE
    node.step(ProbeFailed(probe="nvml", fault=FaultName("ProbeCrashed"), at=node.now))
    assert node.status() is UNKNOWN


def test_a_hung_probe_does_not_hide_what_is_bad() -> None:
    node = Node()
    node.look("nvml", seen("GpuLost"))
    node.step(ProbeFailed(probe="nvml", fault=FaultName("ProbeHung"), at=node.now))
    assert node.condition().reason == "GpuLost"


def test_a_question_that_the_hardware_cannot_answer_is_shown_as_blind() -> None:
    node = Node()
    node.step(Snapshot(probe="nvml", at=1.0, boot_id=BOOT, covered=(HOST,), blind=("rowRemap under MIG",)))
    assert node.state.blind["nvml"] == ("rowRemap under MIG",)


def test_release_needs_a_good_look_of_this_boot_by_every_required_probe() -> None:
    node = Node()
    assert not settled(node.state)
    node.look("nvml")
    assert not settled(node.state)
    node.look("efa")
    assert settled(node.state)
    node.look("efa", seen("NicDown", HOST, "efa"))
    assert not settled(node.state)
    node.look("efa")
    node.reboot()
    assert not settled(node.state)


# --- a restarted agent ---------------------------------------------------------------------------------------------


def restarted(node: Node, boot_id: BootId = BOOT) -> Node:
    after = Node(boot_id=boot_id)
    after.now = node.now
    after.step(Adopt(boot_id=node.state.boot_id, findings=node.findings, conditions=conditions(node.state, node.now)))
    return after


def test_a_restart_moves_no_condition() -> None:
    node = Node()
    node.look("nvml", seen("GpuRowRemapPending"))
    node.xid(79, bus="b1")
    node.step(ProbeFailed(probe="efa", fault=FaultName("ProbeHung"), at=node.now))
    after = restarted(node)
    assert conditions(after.state, after.now) == conditions(node.state, node.now)
    assert after.findings == node.findings
    assert not settled(after.state)


def test_an_adopted_true_holds_only_within_the_same_boot() -> None:
    node = Node()
    node.looks_well()
    assert restarted(node).status() is TRUE
    assert restarted(node, NEXT).status() is UNKNOWN


def test_lines_of_the_ring_that_are_read_again_are_not_counted_again() -> None:
    node = Node()
    node.xid(79)
    first_read = node.now
    after = restarted(node)
    after.now = first_read - 1
    after.xid(79)
    assert after.only.count == 1
    after.xid(79)
    assert after.only.count == 2


def test_lines_before_what_was_judged_open_nothing() -> None:
    node = Node()
    node.step(Adopt(boot_id=BOOT, events_until=5000.0))
    node.xid(79)
    assert node.findings == ()
    node.now = 5000.0
    node.xid(79)
    assert len(node.findings) == 1


def test_a_finding_of_a_fault_that_this_version_does_not_know_is_kept() -> None:
    finding = Finding(
        fault=FaultName("GpuFromTheFuture"),
        component=GPU0,
        verdict=Verdict.BAD,
        recovery=Recovery.REBOOT,
        source=Source.EVENT,
        probe="kernel_log",
        clears=Clears.BOOT,
        first_seen=1.0,
        last_seen=1.0,
        count=1,
        boot_id=BOOT,
    )
    node = Node()
    node.step(Adopt(boot_id=BOOT, findings=(finding,)))
    assert node.condition().reason == "GpuFromTheFuture"
