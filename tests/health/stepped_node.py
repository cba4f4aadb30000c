"""A node whose triage is stepped, and asked: what the tests of health/ share."""

from __future__ import annotations

from collections.abc import Iterable

from fleetwell.health.catalogue import fault
from fleetwell.health.conditions import Condition
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.stimuli import Event, NewBoot, Stimulus
from fleetwell.health.triage import conditions, findings, initial, step
from fleetwell.health.triage_state import Change, ProbeSettings, TriageSettings, TriageState
from fleetwell.health.vocabulary import (
    HOST,
    BootId,
    Component,
    ConditionStatus,
    ConditionType,
    FaultName,
    Finding,
    Observation,
    Snapshot,
    Verdict,
    gpu,
)

BOOT = BootId("boot-1")
NEXT = BootId("boot-2")
GPU0, GPU1 = gpu("GPU-0"), gpu("GPU-1")
GPU_CONDITIONS = frozenset(
    {ConditionType.GPU, ConditionType.GPU_MEMORY, ConditionType.INTERCONNECT, ConditionType.THERMAL}
)
SETTINGS = TriageSettings(
    probes={
        "nvml": ProbeSettings(judges=GPU_CONDITIONS),
        "efa": ProbeSettings(judges=frozenset({ConditionType.NETWORK})),
        "dcgm": ProbeSettings(judges=GPU_CONDITIONS, required=False),
    },
    max_findings=8,
)
ADDRESSES = {"0000:b0:00": "GPU-0", "0000:b1:00": "GPU-1"}
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


class Node:
    """A state that is stepped, and asked."""

    def __init__(self, settings: TriageSettings = SETTINGS, boot_id: BootId = BOOT) -> None:
        self.settings = settings
        self.state: TriageState = initial(boot_id, settings)
        self.reader = KernelLogReader(gpus=ADDRESSES)
        self.now = 1000.0

    def step(self, stimulus: Stimulus) -> Change:
        self.state, change = step(self.state, stimulus, self.settings)
        return change

    def kernel(self, *lines: str, owners: dict[int, str] | None = None, apart: float = 1.0) -> None:
        for line in lines:
            self.now += apart
            self.step(Event(self.reader.read(line, self.now), owners or {}))

    def xid(self, number: int, rest: str = "", bus: str = "b0", owners: dict[int, str] | None = None) -> None:
        self.kernel(f"NVRM: Xid (PCI:0000:{bus}:00): {number}{rest}", owners=owners)

    def look(
        self, probe: str = "nvml", *found: Observation, covered: Iterable[Component] = (HOST, GPU0, GPU1)
    ) -> Change:
        self.now += 1
        return self.step(
            Snapshot(probe=probe, at=self.now, boot_id=self.state.boot_id, observations=found, covered=tuple(covered))
        )

    def looks_well(self, times: int = 1) -> None:
        for _ in range(times):
            self.look("nvml")
            self.look("efa")

    def reboot(self) -> None:
        self.step(NewBoot(NEXT))

    def status(self, kind: ConditionType = ConditionType.GPU) -> ConditionStatus:
        return self.condition(kind).status

    def condition(self, kind: ConditionType = ConditionType.GPU) -> Condition:
        (found,) = [one for one in conditions(self.state, self.now) if one.type is kind]
        return found

    @property
    def findings(self) -> tuple[Finding, ...]:
        return findings(self.state)

    @property
    def only(self) -> Finding:
        (finding,) = self.findings
        return finding


def seen(name: str, component: Component = GPU0, probe: str = "nvml", verdict: Verdict | None = None) -> Observation:
    entry = fault(name)
    return Observation(
        probe=probe,
        fault=FaultName(name),
        component=component,
        verdict=verdict or entry.verdict,
        recovery=entry.recovery,
        at=5.0,
        evidence=f"{name} on {component}",
    )
