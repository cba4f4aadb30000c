"""Which line of a burst is its root, told by what is joined to it and by what stands alone."""

import msgspec
import pytest

from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.stimuli import Event
from fleetwell.health.triage import findings, initial, step
from fleetwell.health.triage_state import TriageSettings
from fleetwell.health.vocabulary import (
    HOST,
    BootId,
    Component,
    FaultName,
    Finding,
    Observation,
    Recovery,
    Snapshot,
    Verdict,
    gpu,
)

SETTINGS = TriageSettings(max_findings=64)
FATAL = "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"


def xid(number: int, rest: str = "", bus: str = "b0") -> str:
    return f"NVRM: Xid (PCI:0000:{bus}:00): {number}{rest}"


def link(registers: str, bus: str = "b0", number: int = 3) -> str:
    return xid(74, f", NVLink: fatal error detected on link {number}({registers})", bus)


BROKEN = "0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0"
"""An error of the link itself."""
SECOND = "0x2, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"
"""A register that says of itself that it is the consequence of another error."""
TORN = ", pid=1, name=a, Ch 1"


def told(*lines: str, apart: float = 1.0, settings: TriageSettings = SETTINGS) -> tuple[Finding, ...]:
    reader = KernelLogReader()
    state = initial(BootId("b"), settings)
    for number, line in enumerate(lines):
        state, _ = step(state, Event(reader.read(line, 1000 + number * apart), {}), settings)
    return findings(state)


def names(*lines: str, apart: float = 1.0) -> list[str]:
    return sorted(one.fault for one in told(*lines, apart=apart))


def test_what_gpus_say_of_a_fatal_switchs_links_is_evidence_of_the_switch_in_either_order() -> None:
    lines = (FATAL, link(BROKEN), link(BROKEN, "b1"), xid(45, TORN, "b2"))
    for order in (lines, lines[::-1]):
        (one,) = told(*order)
        assert one.fault == "NvswitchFatal"
        assert set(one.evidence) == set(lines)


@pytest.mark.parametrize("order", [1, -1])
def test_another_fault_of_a_gpu_is_not_the_switchs(order: int) -> None:
    assert names(*(FATAL, xid(79), xid(62, bus="b1"))[::order]) == ["GpuFallenOffBus", "GpuHalted", "NvswitchFatal"]


def test_a_link_error_long_before_or_after_a_switchs_is_its_own() -> None:
    assert names(FATAL, link(BROKEN), apart=31) == ["NvlinkError", "NvswitchFatal"]
    assert names(link(BROKEN), FATAL, apart=31) == ["NvlinkError", "NvswitchFatal"]


def test_what_a_gpu_says_more_than_of_its_link_is_not_the_switchs() -> None:
    joined = (link(BROKEN), xid(45, TORN + " caused by previous Xid 74"), xid(79))
    assert names(*joined, FATAL) == ["GpuFallenOffBus", "NvswitchFatal"]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("root", "fault"), [(link(BROKEN, number=4), "NvlinkError"), (xid(79), "GpuFallenOffBus"), (xid(62), "GpuHalted")]
)
def test_a_register_that_says_it_is_a_consequence_is_one_where_a_cause_is_near(
    root: str, fault: str, order: int
) -> None:
    (one,) = told(*(root, link(SECOND))[::order])
    assert one.fault == fault
    assert set(one.evidence) == {root, link(SECOND)}


def test_it_is_a_fault_of_its_own_where_there_is_no_cause_or_a_weaker_one() -> None:
    assert names(link(SECOND)) == ["NvlinkError"]
    for order in (1, -1):
        assert names(*(xid(31, TORN), link(SECOND))[::order]) == ["ApplicationFault", "NvlinkError"]
        assert names(*(link(SECOND, number=4), link(SECOND))[::order]) == ["NvlinkError", "NvlinkError"]
        assert names(*(xid(79, bus="b1"), link(SECOND))[::order]) == ["GpuFallenOffBus", "NvlinkError"]


def test_a_link_that_says_it_both_ways_is_broken_itself() -> None:
    (one,) = told(link(SECOND), link(BROKEN), xid(79))[1:]
    assert one.fault == "NvlinkError"
    assert len(told(link(BROKEN), link(SECOND), xid(79))) == 2


def refused(component: Component) -> Observation:
    return Observation(
        probe="kernel_log",
        fault=FaultName("GpuResetRequired"),
        component=component,
        verdict=Verdict.BAD,
        recovery=Recovery.REBOOT,
        at=1010.0,
        evidence="Reset required",
    )


@pytest.mark.parametrize(
    ("line", "component", "stand"),
    [
        (xid(62), gpu("pci-0000:b0:00"), ["GpuHalted"]),
        (xid(62), HOST, ["GpuHalted"]),
        (xid(62), gpu("pci-0000:b1:00"), ["GpuHalted", "GpuResetRequired"]),
        (xid(63, ", Row Remapper"), HOST, ["GpuResetRequired", "GpuRowRemapRecorded"]),
        (xid(167), HOST, ["GpuResetRequired", "GpuUnknownXid"]),
    ],
    ids=["its own", "not said which", "another", "nothing outstanding", "a riddle"],
)
def test_a_call_waits_for_the_outstanding_reset_of_its_gpu_only(
    line: str, component: Component, stand: list[str]
) -> None:
    state = initial(BootId("b"), SETTINGS)
    for seen in (*KernelLogReader().read(line, 1000.0), refused(component)):
        state, _ = step(state, Event((seen,)), SETTINGS)
    assert sorted(one.fault for one in findings(state)) == stand


def test_a_call_does_not_wait_for_what_a_probe_saw() -> None:
    lost = msgspec.structs.replace(refused(gpu("pci-0000:b0:00")), fault=FaultName("GpuLost"), probe="nvml", at=1000.0)
    state = initial(BootId("b"), SETTINGS)
    look = Snapshot(probe="nvml", at=1000.0, boot_id=BootId("b"), observations=(lost,), covered=(lost.component,))
    for stimulus in (look, Event((refused(lost.component),))):
        state, _ = step(state, stimulus, SETTINGS)
    assert sorted(one.fault for one in findings(state)) == ["GpuLost", "GpuResetRequired"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_link_that_asks_for_more_than_the_switch_does_is_not_joined_with_it(order: int) -> None:
    (switch,) = KernelLogReader().read(FATAL, 1000.0)
    (broken,) = KernelLogReader().read(link(BROKEN), 1000.0)
    stronger = msgspec.structs.replace(broken, recovery=Recovery.SUPPORT)
    assert stronger.recovery.rank > switch.recovery.rank
    state = initial(BootId("b"), SETTINGS)
    for seen in (switch, stronger)[::order]:
        state, _ = step(state, Event((seen,)), SETTINGS)
    assert sorted(one.fault for one in findings(state)) == ["NvlinkError", "NvswitchFatal"]


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_tellings_of_one_memory_error_the_strongest_names_it(order: int) -> None:
    for lines, fault in (
        ((xid(63, ", Row"), xid(95), xid(48)), "GpuEccUncorrectable"),
        ((xid(64), xid(95), xid(48)), "GpuRowRemapFailed"),
    ):
        (one,) = told(*lines[::order])
        assert one.fault == fault
        assert set(one.evidence) == set(lines)


def test_a_cause_that_was_only_named_is_joined_with_when_it_is_seen() -> None:
    torn = xid(45, TORN + " caused by previous Xid 62")
    assert len(told(torn)) == 1
    (one,) = told(torn, xid(62))
    assert one.fault == "GpuHalted"
    assert set(one.evidence) == {torn, xid(62)}
    assert len(told(torn, xid(79))) == 2


def test_what_was_torn_down_without_any_cause_is_its_own_and_a_code_that_asks_for_nothing_is_no_cause() -> None:
    assert len(told(xid(45, TORN))) == 1
    assert len(told(xid(63, ", Row Remapper"), xid(45, TORN))) == 2


def test_the_drivers_advice_is_evidence_of_the_fault_that_it_is_about() -> None:
    advice = xid(154, ", GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    for lines in ((xid(62), advice), (advice, xid(62))):
        (one,) = told(*lines)
        assert one.recovery is Recovery.REBOOT
        assert set(one.evidence) == set(lines)


def test_advice_that_took_the_place_of_the_riddle_that_it_explains_stands_alone() -> None:
    advice = xid(154, ", GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    (one,) = told(xid(999), advice, settings=TriageSettings(max_findings=1))
    assert one.fault == "GpuRecoveryActionReset"
    assert one.evidence == (advice,)


@pytest.mark.parametrize("rest", ["", ", something that nobody has seen yet"])
def test_advice_that_cannot_be_read_is_a_riddle_and_explains_nothing(rest: str) -> None:
    (one,) = told(xid(154, rest))
    assert (one.fault, one.verdict, one.recovery) == ("GpuRecoveryActionUnknown", Verdict.UNKNOWN, Recovery.SUPPORT)
    assert names(xid(62), xid(154, rest)) == ["GpuHalted", "GpuRecoveryActionUnknown"]


def test_few_corrected_errors_become_many() -> None:
    line = "nvidia 0000:17:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer"
    few, many = told(line), told(line, line, line)
    assert [one.fault for one in few] == ["PcieErrorsNoted"]
    assert [one.fault for one in many] == ["PcieErrorsUncorrected"]
