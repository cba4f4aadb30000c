"""One event on one GPU is one finding, named by its root; and what comes back for many is a suspicion."""

import time

import pytest

from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.stimuli import Adopt, Event, NewBoot, RemedyDone, Tick
from fleetwell.health.triage import conditions, findings, initial, step
from fleetwell.health.triage_state import TriageSettings, TriageState
from fleetwell.health.vocabulary import HOST, BootId, FaultName, Finding, Observation, Recovery, Verdict, gpu

SETTINGS = TriageSettings(max_findings=64)


def xid(number: int, rest: str = "", bus: str = "b0") -> str:
    return f"NVRM: Xid (PCI:0000:{bus}:00): {number}{rest}"


def advice(to: str) -> str:
    return xid(154, f", GPU recovery action changed from 0x0 (None) to {to}")


RESET, REBOOT = advice("0x1 (GPU Reset Required)"), advice("0x2 (Node Reboot Required)")


def told(*lines: str, apart: float = 1.0, owners: dict[int, str] | None = None) -> TriageState:
    reader = KernelLogReader()
    state = initial(BootId("b"), SETTINGS)
    for number, line in enumerate(lines):
        state, _ = step(state, Event(reader.read(line, 1000 + number * apart), owners or {}), SETTINGS)
    return state


def found(*lines: str, apart: float = 1.0) -> dict[str, Recovery]:
    return {one.fault: one.recovery for one in findings(told(*lines, apart=apart))}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("lines", "fault", "recovery"),
    [
        ([xid(79), xid(45, ", pid=1, name=a, Ch 1")], "GpuFallenOffBus", Recovery.REBOOT),
        ([xid(79), RESET], "GpuFallenOffBus", Recovery.REBOOT),
        ([xid(119), REBOOT], "GpuGspTimeout", Recovery.REBOOT),
        ([xid(151), RESET], "GpuKeyRotationFailed", Recovery.RESET_GPU),
        ([xid(64), RESET], "GpuRowRemapFailed", Recovery.REPLACE),
        ([xid(48), xid(63, ", Row Remapper")], "GpuEccUncorrectable", Recovery.RESET_GPU),
        ([xid(48), xid(64)], "GpuRowRemapFailed", Recovery.REPLACE),
        ([xid(48), xid(94, ", pid=1, name=a, Ch 1")], "GpuEccUncorrectable", Recovery.RESET_GPU),
        ([xid(48), xid(95)], "GpuEccUncorrectable", Recovery.RESET_GPU),
        ([xid(48), xid(171)], "GpuEccUncorrectable", Recovery.RESET_GPU),
        ([xid(63, ", Row"), xid(94, ", Contained")], "GpuContainedEcc", Recovery.RESTART_WORKLOAD),
        ([xid(167), REBOOT], "GpuRecoveryActionReboot", Recovery.REBOOT),
        ([xid(31, ", pid=1, name=a, x"), xid(45, ", pid=1, name=a, y")], "ApplicationFault", Recovery.RESTART_WORKLOAD),
    ],
)
def test_the_lines_of_a_burst_are_one_finding_in_either_order(
    lines: list[str], fault: str, recovery: Recovery, order: int
) -> None:
    assert found(*lines[::order]) == {fault: recovery}


def test_outside_the_burst_they_are_findings_of_their_own() -> None:
    assert len(found(xid(79), xid(45, ", pid=1, name=a, Ch 1"), apart=31)) == 2


def test_another_gpus_lines_are_not_joined() -> None:
    assert len(findings(told(xid(79), xid(45, ", pid=1, name=a, Ch 1", "b1")))) == 2


def test_an_application_fault_with_a_reboot_asked_for_is_a_reboot() -> None:
    assert found(xid(31, ", pid=1, name=a, MMU Fault"), REBOOT)["GpuRecoveryActionReboot"] is Recovery.REBOOT


def test_advice_without_a_cause_is_a_finding_and_the_stronger_of_two_counts() -> None:
    assert found(RESET) == {"GpuRecoveryActionReset": Recovery.RESET_GPU}
    assert found(xid(119), RESET, REBOOT, RESET) == {"GpuGspTimeout": Recovery.REBOOT}


def test_a_decoded_link_error_gathers_the_channels_that_it_tore_down() -> None:
    link = xid(149, ", NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)")
    torn = xid(45, ", pid=1, name=python3, Ch 1 caused by previous Xid 149")
    assert found(link, torn, torn) == {"NvlinkDown": Recovery.RESET_GPU}
    assert found(torn, torn, link) == {"NvlinkDown": Recovery.RESET_GPU}
    assert found(torn, torn) == {"NvlinkError": Recovery.RESET_GPU}


def test_lost_packets_are_the_jobs_affair_unless_the_driver_asks_for_more() -> None:
    loss = xid(145, ", RLW_SRC_TRACK Nonfatal XC1 i0 Link 10 (0x04082907 0x00000008 0x0)")
    assert found(loss) == {"NvlinkPacketLoss": Recovery.RESTART_WORKLOAD}
    assert found(loss, RESET)["GpuRecoveryActionReset"] is Recovery.RESET_GPU


def test_672_torn_down_channels_are_the_jobs_affair() -> None:
    lines = [xid(45, f", pid={4000 + number}, name=python3, Ch 1") for number in range(672)]
    (finding,) = findings(told(*lines, apart=16))
    assert (finding.count, finding.suspected, finding.verdict) == (672, False, Verdict.CONFIG)


# --- repetition ----------------------------------------------------------------------------------------------------


def exception(pid: int, unit: str = "(GPC 7, TPC 3, SM 0)") -> str:
    return xid(13, f", pid={pid}, name=python, Graphics SM Warp Exception on {unit}: Out Of Range Address")


def suspected(state: TriageState) -> bool:
    return any(one.suspected for one in findings(state))


def test_the_same_unit_failing_three_different_jobs_is_a_suspicion_that_a_proof_ends() -> None:
    state = told(exception(1), exception(2), exception(3), apart=3600)
    (finding,) = findings(state)
    assert finding.suspected
    assert finding.recovery is Recovery.RESTART_WORKLOAD
    state, _ = step(state, Tick(1e9), SETTINGS)
    assert suspected(state)
    state, _ = step(state, RemedyDone(recovery=Recovery.NONE, component=HOST, proof_passed=True), SETTINGS)
    assert findings(state) == ()


@pytest.mark.parametrize(
    "lines",
    [
        [exception(1)] * 50,
        [exception(1), exception(2, "(GPC 1, TPC 1, SM 0)"), exception(3, "(GPC 2, TPC 2, SM 0)")],
        [exception(pid, "nothing") for pid in range(1, 9)],
        [xid(43, f", pid={pid}, name=a, Ch 1") for pid in range(1, 9)],
        [xid(31, f", pid={pid}, name=a, MMU", f"b{pid}") for pid in range(1, 9)],
    ],
    ids=["one process", "other units", "no unit", "a code that says nothing of hardware", "other GPUs"],
)
def test_other_repetition_is_no_suspicion(lines: list[str]) -> None:
    assert not suspected(told(*lines))


def test_one_pod_that_crashes_again_and_again_is_no_suspicion() -> None:
    owners = {1: "pod-a", 2: "pod-a", 3: "pod-a", 4: "pod-b"}
    lines = [xid(31, f", pid={pid}, name=a, MMU Fault") for pid in (1, 2, 3, 4)]
    assert not suspected(told(*lines, owners=owners))
    assert suspected(told(*lines, owners={**owners, 3: "pod-c"}))


def test_jobs_that_failed_long_ago_do_not_count() -> None:
    assert not suspected(told(exception(1), exception(2), exception(3), apart=86_500))


LOST = "NVRM: GPU0 nvCheckOkFailedNoLog: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F)"
NO_START = "NVRM: GPU 0000:b0:00.0: RmInitAdapter failed! (0x22:0x56:901)"
NONE_STARTED = "NVRM: None of the NVIDIA devices were initialized."
SILENT = "NVRM: GPU at PCI:0000:b0:00: GSP RM heartbeat timed out"
SILENT_TOO = "NVRM: nvAssertFailedNoLog: Assertion failed: GSP RM heartbeat timed out"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([xid(79), LOST], "GpuFallenOffBus"),
        ([xid(79), NO_START], "GpuFallenOffBus"),
        ([xid(79), NONE_STARTED], "GpuFallenOffBus"),
        ([NO_START, NONE_STARTED], "GpuInitFailed"),
        ([NONE_STARTED, NO_START], "GpuInitFailed"),
        ([xid(119), SILENT], "GpuGspTimeout"),
        ([xid(119), SILENT_TOO], "GpuGspTimeout"),
    ],
)
def test_what_the_driver_goes_on_saying_of_a_gpu_that_is_known_to_be_bad_is_no_other_finding(
    lines: list[str], fault: str
) -> None:
    assert [one.fault for one in findings(told(*lines))] == [fault]


def test_what_it_says_of_another_gpu_or_of_a_gpu_in_other_trouble_is_one() -> None:
    assert len(found(xid(79, bus="b1"), NO_START)) == 2
    assert len(found(xid(63, ", Row Remapper"), NO_START)) == 2


# --- floods --------------------------------------------------------------------------------------------------------


def test_eight_hundred_thousand_equal_events_are_one_finding_with_a_count() -> None:
    reader = KernelLogReader()
    state = initial(BootId("b"), SETTINGS)
    (one,) = reader.read(xid(95, ", Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"), 1000.0)
    for _ in range(80):
        state, _ = step(state, Event((one,) * 10_000), SETTINGS)
    (finding,) = findings(state)
    assert finding.count == 800_000
    assert len(finding.evidence) == 1


def test_distinct_events_are_bounded_and_a_bad_one_still_gets_in() -> None:
    reader = KernelLogReader()
    state = initial(BootId("b"), SETTINGS)
    start = time.perf_counter()
    for number in range(3000):
        line = f"NVRM: Xid ({number:04x}:00:00): 43, pid={number}, name=a, Ch {number}"
        state, _ = step(state, Event(reader.read(line, 1000.0)), SETTINGS)
    assert time.perf_counter() - start < 5
    assert len(state.kept) == SETTINGS.max_findings
    assert state.overflow == 3000 - SETTINGS.max_findings
    assert [one.reason for one in conditions(state, 1001.0)][-1] == "FindingsOverflow"
    state, change = step(state, Event(reader.read(xid(79), 1001.0)), SETTINGS)
    assert [one.fault for one in change.opened] == ["GpuFallenOffBus"]
    assert len(state.kept) == SETTINGS.max_findings


def test_evidence_keeps_the_first_line_and_the_latest_ones() -> None:
    lines = [xid(119, f", pid={number}, name=a, Timeout") for number in range(9)]
    (finding,) = findings(told(*lines))
    assert [line.split("pid=")[1].split(",")[0] for line in finding.evidence] == ["0", "5", "6", "7", "8"]


def test_adopting_more_than_there_is_room_for_keeps_the_worst() -> None:
    small = TriageSettings(max_findings=1)
    kept = findings(told(xid(43, ", pid=1, name=a, Ch 1"), xid(79, "", "b1"), apart=100))
    state, _ = step(initial(BootId("b"), small), Adopt(boot_id=BootId("b"), findings=kept), small)
    (finding,) = findings(state)
    assert finding.fault == "GpuFallenOffBus"


# --- public incidents that are kernel logs -------------------------------------------------------------------------

NO_ACTION = Recovery.RESTART_WORKLOAD.rank
INCIDENTS: list[tuple[str, list[str], Recovery]] = [
    (
        "only a reset-required assertion",
        ["NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x62) @ k.c:2827"],
        Recovery.REBOOT,
    ),
    (
        "45 caused by 149 on four GPUs",
        [xid(45, ", pid=9, name=p, Ch 1 caused by previous Xid 149", f"b{n}") for n in range(4)],
        Recovery.RESET_GPU,
    ),
    ("31, then the driver asks for a reboot", [xid(31, ", pid=1, name=a, MMU Fault"), REBOOT], Recovery.REBOOT),
    (
        "three records of a bus loss",
        [
            "NVRM: The NVIDIA GPU 0000:b3:00.0",
            "NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ],
        Recovery.REBOOT,
    ),
    (
        "no device comes up",
        [
            "NVRM: RmInitAdapter failed! (0x62:0x65:1792)",
            "NVRM: rm_init_adapter failed for device bearing minor number 0",
        ],
        Recovery.REBOOT,
    ),
    (
        "the link mask flood",
        ["NVRM: knvlinkUpdatePostRxDetLinkMask_IMPL: Failed to update Rx Detect Link mask!"] * 10,
        Recovery.REBOOT,
    ),
    (
        "two fatal switch errors",
        [
            "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 19084, Fatal, Link 30 AN1 Heartbeat Timeout Error",
        ],
        Recovery.REPLACE,
    ),
    ("a legacy line", ["NVRM: Xid (0000:03:00): 14, Channel 00000001"], Recovery.NONE),
    ("a bare 43", [xid(43, ", pid=1, name=python, Ch 00000008")], Recovery.NONE),
]


@pytest.mark.parametrize(("what", "lines", "recovery"), INCIDENTS, ids=[what for what, _, _ in INCIDENTS])
def test_a_public_incident_asks_for_what_helped(what: str, lines: list[str], recovery: Recovery) -> None:
    worst: Finding = findings(told(*lines, apart=4.0))[0]
    assert worst.recovery is recovery
    assert (worst.verdict is Verdict.BAD) == (recovery.rank > NO_ACTION)


def test_an_observation_made_by_hand_joins_like_any_other() -> None:
    one = Observation(
        probe="journal",
        fault=FaultName("GpuFallenOffBus"),
        component=gpu("pci-0000:b0:00"),
        verdict=Verdict.BAD,
        recovery=Recovery.REBOOT,
        at=1001.0,
        evidence="by hand",
        xid=79,
    )
    state, _ = step(told(xid(79)), Event((one,)), SETTINGS)
    (finding,) = findings(state)
    assert finding.count == 2


NONE = xid(154, ", GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")


@pytest.mark.parametrize("apart", [1.0, 10_000.0])
def test_the_driver_takes_back_what_it_asked_for(apart: float) -> None:
    assert found(RESET, NONE, apart=apart) == {}
    assert found(RESET, REBOOT, advice("0x9 (New)"), NONE, apart=apart) == {}
    assert found(RESET, xid(45, ", pid=1, name=a, Ch 1"), NONE, apart=apart).get("GpuRecoveryActionReset") is None


def test_what_the_driver_asks_for_after_it_took_something_back_counts() -> None:
    assert found(RESET, NONE, REBOOT) == {"GpuRecoveryActionReboot": Recovery.REBOOT}
    assert found(NONE, RESET) == {"GpuRecoveryActionReset": Recovery.RESET_GPU}


def test_only_the_advice_is_taken_back_and_not_what_the_code_before_it_asks_for() -> None:
    assert found(xid(119), REBOOT, NONE) == {"GpuGspTimeout": Recovery.RESET_GPU}
    assert found(xid(119), REBOOT, xid(119), NONE) == {"GpuGspTimeout": Recovery.RESET_GPU}
    assert found(xid(79), RESET, NONE) == {"GpuFallenOffBus": Recovery.REBOOT}
    assert found(xid(31, ", pid=1, name=a, x"), REBOOT, NONE) == {"ApplicationFault": Recovery.RESTART_WORKLOAD}
    assert found(xid(119), REBOOT, NONE, REBOOT, NONE) == {"GpuGspTimeout": Recovery.RESET_GPU}


@pytest.mark.parametrize("lines", [(xid(167), REBOOT), (REBOOT, xid(167))])
def test_a_code_that_only_the_advice_explained_is_a_riddle_again(lines: tuple[str, str]) -> None:
    assert found(*lines) == {"GpuRecoveryActionReboot": Recovery.REBOOT}
    (alone,) = found(xid(167)).items()
    assert found(*lines, NONE) == dict([alone])


def test_nothing_is_taken_back_on_another_gpu_or_from_a_later_time_or_of_another_boot() -> None:
    assert found(RESET, NONE.replace(":b0:", ":b1:")) == {"GpuRecoveryActionReset": Recovery.RESET_GPU}
    reader = KernelLogReader()
    (late,), (none,) = reader.read(RESET, 2000.0), reader.read(NONE, 1000.0)
    state, _ = step(initial(BootId("b"), SETTINGS), Event((late, none)), SETTINGS)
    assert [one.fault for one in findings(state)] == ["GpuRecoveryActionReset"]
    state, _ = step(told(RESET), NewBoot(BootId("c")), SETTINGS)
    state, _ = step(state, Event(reader.read(NONE, 9000.0)), SETTINGS)
    assert [one.fault for one in findings(state)] == ["GpuRecoveryActionReset"]


def test_what_an_earlier_agent_found_is_taken_back_too() -> None:
    adopted = Adopt(boot_id=BootId("b"), findings=findings(told(RESET)))
    state, _ = step(initial(BootId("b"), SETTINGS), adopted, SETTINGS)
    state, change = step(state, Event(KernelLogReader().read(NONE, 3000.0)), SETTINGS)
    assert not findings(state)
    assert [one.fault for one in change.closed] == ["GpuRecoveryActionReset"]


REFUSED = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Reset required [NV_ERR_RESET_REQUIRED] (0x62) returned from x @ g.c:1"
)


def test_calls_that_wait_for_an_outstanding_reset_are_no_finding_of_their_own() -> None:
    assert found(xid(62), RESET, REFUSED, apart=9000) == {
        "GpuHalted": Recovery.RESET_GPU,
        "GpuRecoveryActionReset": Recovery.RESET_GPU,
    }
    assert found(xid(62), REFUSED, REFUSED) == {"GpuHalted": Recovery.RESET_GPU}


def test_calls_that_wait_for_a_reset_nobody_asked_for_count() -> None:
    assert found(REFUSED) == {"GpuResetRequired": Recovery.REBOOT}
    assert "GpuResetRequired" in found(xid(31, ", pid=1, name=a, x"), REFUSED)
    done = RemedyDone(recovery=Recovery.RESET_GPU, component=HOST, proof_passed=False)
    state, _ = step(told(xid(62)), done, SETTINGS)
    state, _ = step(state, Event(KernelLogReader().read(REFUSED, 5000.0)), SETTINGS)
    assert {one.fault for one in findings(state)} == {"GpuHalted", "GpuResetRequired"}
