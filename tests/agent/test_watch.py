"""When the children look, and the three kinds of no answer as they come out: not installed, silent, unintelligible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import Boot
from fleetwell.agent.settings import Settings, Timing
from fleetwell.agent.sources import ChildSource
from fleetwell.agent.watch import Watch
from fleetwell.health.vocabulary import BootId, ConditionStatus, ConditionType, Verdict
from fleetwell.probes.child import Answer, Crashed, Hung, Nonsense, Outcome, Outstanding
from fleetwell.probes.inventory import Expected, MachineMemory
from fleetwell.probes.report import Report

BOOT = Boot(boot_id=BootId("boot-1"), booted_at=1.0, serial="s1", instance_type="", driver_branch=570)
GPU = "gpu/GPU-1"


class Child:
    """Gives the outcomes that a test wants, one a look, the last one again and again."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.looks = 0
        self.outstanding = None
        self.interrupted = 0

    async def run(self, _argv: Sequence[str], *, deadline: float, env: Mapping[str, str]) -> Outcome:
        del deadline, env
        self.looks += 1
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def interrupt(self) -> None:
        self.interrupted += 1


def said(probe: str, *faults: str, absent: str = "") -> Answer:
    report = Report(probe)
    report.covers("host", GPU)
    for fault in faults:
        report.fault(fault, GPU, "seen")
    if absent:
        report = Report(probe)
        report.absent(absent)
    return Answer(f"{report.encode()}\n".encode())


class Node:
    """One agent's sources, with children of a test."""

    def __init__(self, tmp_path: Path, memory: MachineMemory, must: Expected) -> None:
        self.assessment = Assessment(BOOT, memory, must)
        self.watch = Watch(Settings(node_name="n", host_root=tmp_path, state_dir=tmp_path), self.assessment)

    def source(self, probe: str, *outcomes: Outcome) -> ChildSource:
        source = next(one for one in self.watch.all if one.name == probe)
        source.child = Child(*outcomes)  # type: ignore[assignment]  # what a look needs of it
        return source

    async def look(self, probe: str, *outcomes: Outcome) -> list[tuple[str, Verdict]]:
        """Have a probe look once for each of these, and give what is found then."""
        source = self.source(probe, *outcomes)
        for _ in outcomes:
            await source.look()
        return [(finding.fault, finding.verdict) for finding in self.assessment.findings]

    def state(self, probe: str) -> str:
        return next(one.state for one in self.assessment.status().probes if one.name == probe)

    def condition(self, kind: ConditionType) -> ConditionStatus | None:
        return next((one.status for one in self.assessment.conditions() if one.type is kind), None)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A machine of which nothing is known."""
    return Node(tmp_path, MachineMemory(serial="s1"), Expected())


@pytest.fixture
def gpu_node(tmp_path: Path) -> Node:
    """A machine that must have GPUs."""
    return Node(tmp_path, MachineMemory(serial="s1"), Expected(gpus=8))


PROBES = ("nvml", "nvidia_smi", "dcgm")
NO_ANSWERS: tuple[Outcome, ...] = (
    Hung(deadline=15, abandoned=False),
    Crashed("exit code 1", ""),
    Nonsense("not a report"),
)


@pytest.mark.parametrize("probe", PROBES)
async def test_what_is_not_installed_and_not_required_is_blind(node: Node, probe: str) -> None:
    assert await node.look(probe, *[said(probe, absent="no library")] * 3) == []
    assert node.state(probe) == "Blind"
    assert any(text.startswith(f"{probe}: ") for text in node.assessment.status().blind)
    assert node.assessment.status().verdict is not Verdict.OK  # Nobody has said that it is well.


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("outcome", NO_ANSWERS)
async def test_what_never_answered_and_is_not_required_is_blind_however_it_fails(
    node: Node, probe: str, outcome: Outcome
) -> None:
    assert await node.look(probe, outcome, outcome, outcome) == []


@pytest.mark.parametrize("probe", PROBES)
async def test_what_answered_before_and_is_silent_is_unknown_after_its_debounce(node: Node, probe: str) -> None:
    assert await node.look(probe, said(probe), said(probe, absent="no library")) == []
    assert await node.look(probe, said(probe, absent="no library")) == [("ProbeSilent", Verdict.UNKNOWN)]
    assert node.condition(ConditionType.MONITORING) is ConditionStatus.UNKNOWN


@pytest.mark.parametrize("probe", PROBES)
async def test_what_answered_before_the_agent_began_anew_is_silent_and_not_missing(tmp_path: Path, probe: str) -> None:
    before = Node(tmp_path, MachineMemory(serial="s1"), Expected())
    await before.look(probe, said(probe))
    after = Node(tmp_path, before.assessment.memory, Expected())
    after.assessment.adopt(before.assessment.status(), (), 0.0)
    crash = Crashed("exit code 1", "")
    assert await after.look(probe, crash, crash) == [("ProbeCrashed", Verdict.UNKNOWN)]


@pytest.mark.parametrize(
    ("outcome", "fault"), list(zip(NO_ANSWERS, ("ProbeHung", "ProbeCrashed", "ProbeNonsense"), strict=True))
)
async def test_what_is_required_and_never_answered_leaves_all_that_it_judges_unknown(
    gpu_node: Node, outcome: Outcome, fault: str
) -> None:
    assert await gpu_node.look("nvml", outcome, outcome, outcome) == [(fault, Verdict.UNKNOWN)]
    for kind in (ConditionType.GPU, ConditionType.GPU_MEMORY, ConditionType.INTERCONNECT, ConditionType.THERMAL):
        assert gpu_node.condition(kind) is ConditionStatus.UNKNOWN


async def test_silence_clears_nothing_that_was_found_before(gpu_node: Node) -> None:
    await gpu_node.look("nvml", said("nvml", "GpuRowRemapFailed"))
    found = await gpu_node.look("nvml", *[Crashed("exit code 1", "")] * 5)
    assert ("GpuRowRemapFailed", Verdict.BAD) in found


async def test_a_second_opinion_that_is_well_never_overrules_nvml(gpu_node: Node) -> None:
    await gpu_node.look("nvml", said("nvml", "GpuRowRemapFailed"))
    for other in ("dcgm", "nvidia_smi"):
        await gpu_node.look(other, *[said(other)] * 5)
    assert gpu_node.condition(ConditionType.GPU_MEMORY) is ConditionStatus.FALSE


async def test_a_second_opinion_that_is_well_stands_behind_no_condition(gpu_node: Node) -> None:
    for other in ("dcgm", "nvidia_smi"):
        await gpu_node.look(other, said(other), said(other))
    assert gpu_node.condition(ConditionType.GPU) is ConditionStatus.UNKNOWN
    assert not gpu_node.assessment.status().settled


async def test_what_a_second_opinion_finds_counts(gpu_node: Node) -> None:
    assert await gpu_node.look("nvidia_smi", said("nvidia_smi", "GpuRowRemapFailed")) == [
        ("GpuRowRemapFailed", Verdict.BAD)
    ]


async def test_an_update_of_the_library_under_a_loaded_driver_is_no_fault_of_the_hardware_and_no_pass(
    gpu_node: Node,
) -> None:
    report = Report("nvml")
    report.fault("DriverLibraryMismatch", "host", "nvmlInit: version mismatch")
    report.fault("ProbeSilent", "host", "NVML answers nothing")
    answer = Answer(f"{report.encode()}\n".encode())
    assert dict(await gpu_node.look("nvml", answer, answer)) == {
        "DriverLibraryMismatch": Verdict.CONFIG,
        "ProbeSilent": Verdict.UNKNOWN,
    }
    assert gpu_node.condition(ConditionType.GPU_MEMORY) is ConditionStatus.UNKNOWN


def asked_now(watch: Watch) -> set[str]:
    return {source.name for source in watch.all if source._triggered.is_set()}


async def test_the_others_are_asked_when_nvml_fails_but_not_when_the_driver_hangs(node: Node) -> None:
    await node.look("nvml", Crashed("exit code 1", ""))
    assert asked_now(node.watch) == {"nvidia_smi", "dcgm"}
    for source in node.watch.all:
        source._triggered.clear()
    for stuck in (Hung(deadline=15, abandoned=True), Outstanding(pid=7, since=0.0)):
        await node.look("nvml", stuck)
        node.watch.look_now()
        assert asked_now(node.watch) == {"nvml", "sysfs"}
        for source in node.watch.all:
            source._triggered.clear()


async def test_everybody_looks_when_something_has_happened(node: Node) -> None:
    node.watch.look_now()
    assert asked_now(node.watch) == {"nvml", "sysfs", "nvidia_smi", "dcgm"}


async def test_a_probe_of_a_long_interval_looks_again_soon_until_all_is_well(node: Node) -> None:
    bad, well = said("dcgm", "DcgmUnhealthy"), said("dcgm")
    source = node.source("dcgm", well, bad, well, well)
    restless = []
    for _ in range(4):
        await source.look()
        restless.append(source._restless)
    assert restless == [0, 2, 1, 0]


async def test_what_an_earlier_agent_found_is_looked_at_again_soon(tmp_path: Path, gpu_node: Node) -> None:
    await gpu_node.look("nvidia_smi", said("nvidia_smi", "GpuRowRemapFailed"))
    after = Node(tmp_path, gpu_node.assessment.memory, Expected(gpus=8))
    after.assessment.adopt(gpu_node.assessment.status(), (), 0.0)
    source = after.source("nvidia_smi", said("nvidia_smi"))
    await source.look()
    assert source._restless == 1
    await source.look()
    assert (source._restless, after.assessment.findings) == (0, ())


async def test_a_look_that_a_pause_interrupts_says_nothing(node: Node) -> None:
    await node.look("nvml", said("nvml"))
    source = node.source("nvml", Crashed("signal 9", ""))
    with node.watch.paused():
        await source.look()
        assert source.child.interrupted == 1  # type: ignore[attr-defined]  # a test's child
        assert node.state("nvml") == node.state("dcgm") == "Paused"
    await source.look()
    assert [finding.fault for finding in node.assessment.findings] == []  # One crash is within the debounce.
    await source.look()
    assert [finding.fault for finding in node.assessment.findings] == ["ProbeCrashed"]


def test_second_opinions_can_be_left_out_and_nobody_waits_for_them(tmp_path: Path) -> None:
    assessment = Assessment(BOOT, MachineMemory(serial="s1"), Expected())
    settings = Settings(node_name="n", host_root=tmp_path, state_dir=tmp_path, nvidia_smi=None, dcgm=None)
    assert [source.name for source in Watch(settings, assessment).all] == ["nvml", "sysfs"]
    asked = Settings(node_name="n", host_root=tmp_path, state_dir=tmp_path, dcgm=Timing(interval=1, deadline=1))
    watch = Watch(asked, assessment)
    for source in watch.main:
        source.first_look.set()
    assert watch.looked()
