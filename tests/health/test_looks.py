"""What a probe's look, and its silence, do to what it said before."""

import msgspec

from fleetwell.health.catalogue import fault
from fleetwell.health.stimuli import Adopt, NewBoot, ProbeFailed
from fleetwell.health.triage import settled
from fleetwell.health.triage_state import ProbeSettings, TriageSettings
from fleetwell.health.vocabulary import HOST, BootId, Clears, ConditionType, FaultName, Snapshot, Verdict
from health.stepped_node import BOOT, FALSE, GPU0, GPU1, GPU_CONDITIONS, NEXT, TRUE, UNKNOWN, Node, seen


def silent(node: Node, probe: str = "nvml", name: str = "ProbeHung", evidence: str = "") -> None:
    node.step(ProbeFailed(probe=probe, fault=FaultName(name), at=node.now, evidence=evidence))


def test_what_a_probe_sees_ends_by_that_probe_whatever_its_fault_says_of_events() -> None:
    node = Node()
    node.look("nvml", seen("GpuFallenOffBus"))
    assert node.only.clears is Clears.SNAPSHOT
    node.look("nvml")
    node.look("nvml")
    assert node.findings == ()


def test_an_ok_of_an_earlier_boot_does_not_count_towards_the_end() -> None:
    node = Node()
    node.look("nvml", seen("GpuRowRemapFailed"))
    node.look("nvml")
    node.reboot()
    node.look("nvml")
    assert node.only.fault == "GpuRowRemapFailed"
    node.look("nvml")
    assert node.findings == ()


def test_what_is_found_beside_the_components_that_were_looked_at_is_debounced_too() -> None:
    node = Node()
    lost = seen("GpuMissing", HOST)
    node.look("nvml", lost, covered=())
    node.look("nvml", lost, covered=())
    assert node.only.fault == "GpuMissing"


def test_an_answer_ends_a_probes_silence_also_when_it_did_not_cover_the_host() -> None:
    node = Node()
    silent(node)
    for _ in range(2):
        node.look("nvml", covered=(GPU0,))
    assert node.findings == ()


def test_a_silence_that_is_known_is_counted_at_once_also_by_a_restarted_agent() -> None:
    node = Node()
    for _ in range(2):
        silent(node, name="ProbeCrashed")
    after = Node()
    after.step(Adopt(boot_id=BOOT, findings=node.findings))
    assert after.only.count == 1
    after.now = node.now + 1
    silent(after, name="ProbeCrashed")
    assert (after.only.fault, after.only.count) == ("ProbeCrashed", 2)


def test_what_an_earlier_agent_had_found_is_seen_again_without_a_second_debounce() -> None:
    node = Node()
    for _ in range(2):
        node.look("nvml", seen("GpuMissing", HOST))
    after = Node()
    after.step(Adopt(boot_id=BOOT, findings=node.findings))
    before = after.only.count
    after.look("nvml", msgspec.structs.replace(seen("GpuMissing", HOST), at=node.now + 1))
    assert after.only.count == before + 1


def test_a_silence_that_came_without_words_is_told_in_those_of_the_catalogue() -> None:
    node = Node()
    silent(node)
    assert node.only.evidence == (fault("ProbeHung").means,)


def test_a_question_that_can_be_answered_again_is_not_blind_any_more() -> None:
    node = Node()
    node.step(Snapshot(probe="nvml", at=1.0, boot_id=BOOT, covered=(HOST,), blind=("rowRemap under MIG",)))
    node.look("nvml")
    assert "nvml" not in node.state.blind


def test_where_no_probe_is_required_those_that_looked_must_have_found_the_node_well() -> None:
    optional = TriageSettings(probes={"dcgm": ProbeSettings(judges=GPU_CONDITIONS, required=False)})
    node = Node(optional)
    assert not settled(node.state)
    node.look("dcgm")
    assert settled(node.state)
    node.look("dcgm", seen("GpuLost", probe="dcgm"))
    assert not settled(node.state)


def test_settings_that_change_on_the_way_take_effect() -> None:
    node = Node()
    node.looks_well()
    more = {**node.settings.probes, "imex": ProbeSettings(judges=frozenset({ConditionType.INTERCONNECT}))}
    node.settings = TriageSettings(probes=more)
    node.look("nvml")
    assert not settled(node.state)
    assert node.status(ConditionType.INTERCONNECT) is UNKNOWN


def test_more_findings_in_one_look_than_there_is_room_for_are_counted_until_the_next_boot() -> None:
    node = Node(TriageSettings(probes={"nvml": ProbeSettings(judges=GPU_CONDITIONS)}, max_findings=1))
    node.look("nvml", seen("GpuLost"), seen("GpuLost", GPU1))
    node.look("nvml")
    node.look("nvml")
    assert node.condition(ConditionType.MONITORING).reason == "FindingsOverflow"
    node.step(NewBoot(NEXT))
    node.look("nvml")
    assert node.status(ConditionType.MONITORING) is TRUE


def test_an_event_of_an_earlier_boot_stays_while_one_of_the_probes_that_matter_does_not_answer() -> None:
    both = {name: ProbeSettings(judges=GPU_CONDITIONS) for name in ("nvml", "smi")}
    node = Node(TriageSettings(probes=both))
    node.xid(79)
    node.step(NewBoot(BootId("boot-2")))
    node.look("nvml")
    silent(node, "nvml")
    node.look("smi")
    assert "GpuFallenOffBus" in {one.fault for one in node.findings}
    assert node.status() is FALSE
    node.look("nvml")
    assert "GpuFallenOffBus" not in {one.fault for one in node.findings}


def test_an_event_of_an_earlier_boot_waits_for_the_probes_that_judge_its_condition_only() -> None:
    node = Node()
    node.xid(79)
    node.reboot()
    node.look("nvml")
    assert not node.findings


def test_what_could_not_be_told_and_asks_for_nothing_moves_no_condition() -> None:
    node = Node()
    node.looks_well()
    noted = seen("GpuRowRemapRecorded", verdict=Verdict.UNKNOWN)
    node.look("nvml", noted)
    node.look("nvml", noted)
    assert node.only.verdict is Verdict.UNKNOWN
    assert node.status(ConditionType.GPU_MEMORY) is TRUE
