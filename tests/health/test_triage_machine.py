"""Triage under any order of stimuli keeps its promises."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fleetwell.health.catalogue import CATALOGUE, fault_or_unknown
from fleetwell.health.conditions import Condition, moves_conditions
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.stimuli import Adopt, Event, NewBoot, ProbeBlind, ProbeFailed, RemedyDone, Stimulus, Tick
from fleetwell.health.triage import conditions, findings, initial, settled, step
from fleetwell.health.triage_state import Change, ProbeSettings, TriageSettings, TriageState, device_of
from fleetwell.health.vocabulary import (
    HOST,
    BootId,
    Clears,
    ConditionStatus,
    ConditionType,
    FaultName,
    Finding,
    Observation,
    Recovery,
    Snapshot,
    Source,
    Verdict,
    gpu,
)

SETTINGS = TriageSettings(
    probes={
        "nvml": ProbeSettings(judges=frozenset({ConditionType.GPU, ConditionType.GPU_MEMORY})),
        "efa": ProbeSettings(judges=frozenset({ConditionType.NETWORK})),
        "dcgm": ProbeSettings(judges=frozenset({ConditionType.GPU}), required=False),
    },
    max_findings=6,
)
PROBES = ("nvml", "efa", "dcgm")
COMPONENTS = (HOST, gpu("GPU-0"), gpu("GPU-1"))
FAILURES = ("ProbeHung", "ProbeCrashed", "ProbeNonsense", "ProbeSilent")
SNAPSHOT_FAULTS = ("GpuLost", "GpuMissing", "GpuRowRemapFailed", "NicDown", "GpuOverheating", "GpuUnknownXid")
TAILS = st.sampled_from(
    [
        "",
        ", pid=4, name=python, Ch 00000008",
        ", pid=5, name=a: 79, b, Graphics SM Warp Exception on (GPC 7, TPC 3, SM 0): x",
        ", pid=6, name=x, Ch 1 caused by previous Xid 79",
        ", GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        ", GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        ", NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)",
    ]
)
XIDS = st.one_of(st.sampled_from([13, 31, 43, 45, 48, 63, 64, 79, 94, 95, 119, 149, 154]), st.integers(1, 180))
ACCEPTED = {Verdict.BAD, Verdict.UNKNOWN}


def by_device(found: tuple[Finding, ...], source: Source) -> dict[str, int]:
    worst: dict[str, int] = {}
    for one in found:
        if one.source is source:
            device = device_of(one.component)
            worst[device] = max(worst.get(device, 0), one.verdict.severity)
    return worst


class TriageMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.boots = 1
        self.now = 1000.0
        self.state: TriageState = initial(BootId("boot-1"), SETTINGS)
        self.twin = self.state
        self.looked: set[str] = set()
        self.adopted = False
        self.reader = KernelLogReader(gpus={"0000:b0:00": "GPU-0", "0000:b1:00": "GPU-1"})

    def do(self, stimulus: Stimulus) -> tuple[tuple[Finding, ...], Change]:
        before = findings(self.state)
        self.state, change = step(self.state, stimulus, SETTINGS)
        self.twin, twin_change = step(self.twin, stimulus, SETTINGS)
        assert twin_change == change
        return before, change

    @rule(xid=XIDS, bus=st.sampled_from(["b0", "b1"]), tail=TAILS, apart=st.floats(0, 40))
    def the_kernel_says(self, xid: int, bus: str, tail: str, apart: float) -> None:
        self.now += apart
        seen = self.reader.read(f"NVRM: Xid (PCI:0000:{bus}:00): {xid}{tail}", self.now)
        full = len(self.state.kept) >= SETTINGS.max_findings
        before, _ = self.do(Event(seen))
        # An event never ends a snapshot's finding, and never makes a device look better than it did.
        kept = findings(self.state)
        lost = {one for one in before if one.source is Source.SNAPSHOT} - set(kept)
        assert not lost or (full and all(one.verdict is not Verdict.BAD for one in lost))
        after = by_device(kept, Source.EVENT)
        for device, severity in by_device(before, Source.EVENT).items():
            if severity == Verdict.BAD.severity:
                assert after[device] == severity
        for one in seen:
            if one.verdict in ACCEPTED and not full:
                assert after[device_of(one.component)] >= one.verdict.severity

    @rule()
    def every_probe_finds_all_well(self) -> None:
        for probe in PROBES:
            self.a_probe_looks(probe, [], HOST, set(COMPONENTS), stale=False)

    @rule(
        probe=st.sampled_from(PROBES),
        names=st.lists(st.sampled_from(SNAPSHOT_FAULTS), max_size=3),
        component=st.sampled_from(COMPONENTS),
        covered=st.sets(st.sampled_from(COMPONENTS)),
        stale=st.booleans(),
    )
    def a_probe_looks(self, probe: str, names: list[str], component: str, covered: set[str], stale: bool) -> None:
        self.now += 1
        place = next(one for one in COMPONENTS if one == component)
        observations = tuple(
            Observation(
                probe=probe,
                fault=FaultName(name),
                component=place,
                verdict=CATALOGUE[FaultName(name)].verdict,
                recovery=CATALOGUE[FaultName(name)].recovery,
                at=self.now,
                evidence="seen",
            )
            for name in names
        )
        boot_id = BootId("another") if stale else self.state.boot_id
        places = tuple(one for one in COMPONENTS if one in covered)
        _, change = self.do(
            Snapshot(probe=probe, at=self.now, boot_id=boot_id, observations=observations, covered=places)
        )
        if stale:
            assert not change
            return
        self.looked.add(probe)
        evicted = self.state.overflow > 0
        for one in change.closed:
            if one.source is Source.EVENT:
                booted = one.clears is Clears.BOOT and one.boot_id != self.state.boot_id
                assert booted or (evicted and one.verdict is not Verdict.BAD)
            elif one.verdict is Verdict.BAD:
                assert one.probe == probe

    @rule(probe=st.sampled_from(PROBES), name=st.sampled_from(FAILURES))
    def a_probe_gives_no_answer(self, probe: str, name: str) -> None:
        self.now += 1
        _, change = self.do(ProbeFailed(probe=probe, fault=FaultName(name), at=self.now))
        assert not [one for one in change.closed if one.verdict is Verdict.BAD]
        if probe != "dcgm":
            assert not settled(self.state)
        if probe == "nvml" and name == "ProbeHung":
            status = {one.type: one.status for one in conditions(self.state, self.now)}
            full = self.state.overflow > 0
            assert full or status[ConditionType.GPU] is not ConditionStatus.TRUE

    @rule(probe=st.sampled_from(PROBES))
    def a_probe_is_not_installed(self, probe: str) -> None:
        _, change = self.do(ProbeBlind(probe=probe, at=self.now))
        assert not [one for one in change.closed if one.verdict is Verdict.BAD]

    @rule()
    def the_machine_restarts(self) -> None:
        self.boots += 1
        before, change = self.do(NewBoot(BootId(f"boot-{self.boots}")))
        assert not change
        assert findings(self.state) == before
        self.looked, self.adopted = set(), False
        assert not settled(self.state)

    @rule(recovery=st.sampled_from(Recovery), component=st.sampled_from(COMPONENTS), passed=st.booleans())
    def a_remedy_is_done(self, recovery: Recovery, component: str, passed: bool) -> None:
        place = next(one for one in COMPONENTS if one == component)
        done = {id(kept.finding): kept.done for kept in self.state.kept.values()}
        boot_id = self.state.boot_id
        _, change = self.do(RemedyDone(recovery=recovery, component=place, proof_passed=passed))
        assert passed or not change
        for one in change.closed:
            assert one.source is Source.EVENT
            assert one.clears is Clears.REMEDY
            rebooted = Recovery.REBOOT if one.boot_id != boot_id else Recovery.NONE
            reached = max(one.rank for one in (recovery, done[id(one)], rebooted))
            riddle = fault_or_unknown(one.fault).unintelligible and reached >= Recovery.REBOOT.rank
            assert one.suspected or riddle or reached >= one.recovery.rank

    @rule(by=st.floats(-5000, 5000))
    def time_goes_on(self, by: float) -> None:
        self.now = max(1.0, self.now + by)
        _, change = self.do(Tick(self.now))
        assert all(one.clears is Clears.TIME for one in change.closed)

    @rule()
    def the_agent_restarts(self) -> None:
        told = conditions(self.state, self.now)
        known = findings(self.state)
        stimulus = Adopt(boot_id=self.state.boot_id, findings=known, conditions=told, answered=self.state.answered)
        fresh = initial(self.state.boot_id, SETTINGS)
        self.state, _ = step(fresh, stimulus, SETTINGS)
        self.state, _ = step(self.state, Tick(self.now), SETTINGS)
        self.twin = self.state
        self.looked, self.adopted = set(), True
        after = conditions(self.state, self.now)
        assert [(one.type, one.status, one.reason) for one in after] == [
            (one.type, one.status, one.reason) for one in told
        ]
        assert not settled(self.state)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.state.kept) <= SETTINGS.max_findings
        assert len(self.state.repetitions) <= 256
        assert all(len(one.evidence) <= 5 for one in findings(self.state))
        assert all(len(kept.xids) <= 32 for kept in self.state.kept.values())

    @invariant()
    def the_same_history_gives_the_same_state(self) -> None:
        assert self.twin == self.state

    @invariant()
    def a_condition_is_never_better_than_its_findings(self) -> None:
        told: dict[ConditionType, Condition] = {one.type: one for one in conditions(self.state, self.now)}
        for kept in self.state.kept.values():
            entry = fault_or_unknown(kept.finding.fault)
            expired = kept.finding.clears is Clears.TIME and self.now - kept.anchor >= entry.seconds
            if expired or not moves_conditions(kept.finding, entry):
                continue
            status = told[entry.condition].status
            assert status is not ConditionStatus.TRUE
            if kept.finding.verdict is Verdict.BAD:
                assert status is ConditionStatus.FALSE

    @invariant()
    def nothing_is_true_before_it_was_checked_in_this_boot(self) -> None:
        if self.adopted:
            return
        told = {one.type: one.status for one in conditions(self.state, self.now)}
        if "nvml" not in self.looked:
            assert told[ConditionType.GPU] is not ConditionStatus.TRUE
            assert told[ConditionType.MONITORING] is not ConditionStatus.TRUE
        if "efa" not in self.looked:
            assert told[ConditionType.NETWORK] is not ConditionStatus.TRUE


TestTriageMachine = TriageMachine.TestCase
TestTriageMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
