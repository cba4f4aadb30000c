"""Puts everything that was read before triage: first how things are (snapshots), then what happened (kernel logs).

In this order because snapshots tell which GPU is at which address, so that a log's line and a query's row about one GPU
become findings of one component. There is no second look, so each snapshot counts as if it had been taken as often as
the longest debounce asks; and each input is a probe of its own, so that none can clear what another one found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from fleetwell.diagnose.diagnosis import Diagnosis, Found, conclude, found, no_answer
from fleetwell.health import triage
from fleetwell.health.catalogue import CATALOGUE
from fleetwell.health.evidence import evidence
from fleetwell.health.stimuli import Event, NewBoot, Tick
from fleetwell.health.triage_state import ProbeSettings, TriageSettings, TriageState
from fleetwell.health.vocabulary import (
    HOST,
    BootId,
    ConditionType,
    FaultName,
    Finding,
    Observation,
    Recovery,
    Snapshot,
    Verdict,
)
from fleetwell.probes.protocol import ChildReport

BOOT: Final = BootId("the boot that was given")
_LOOKS: Final = max(of for _, of in (entry.debounce for entry in CATALOGUE.values()))
_MAX_BLIND: Final = 64

Log = Callable[["Examination"], Iterator[Event | NewBoot]]
"""A kernel log that is read once the snapshots are in: gives what it says, boot for boot."""


class Examination:
    """One machine that is examined once."""

    def __init__(self) -> None:
        self.gpus: dict[str, str] = {}
        """PCI address → UUID, from the snapshots."""
        self.nics: dict[str, str] = {}
        """PCI address → name of the device, from the snapshots."""
        self.uuids: tuple[str, ...] = ()
        """UUIDs in the driver's order, where a snapshot tells that of all GPUs."""
        self.driver = ""
        """Version of the driver, where it was said or is in what was given."""
        self.now: float | None = None
        """The time, on a machine that is looked at: application faults of long ago say nothing then."""
        self.looked = False
        """Whether a snapshot was given."""
        self.counted: set[str] = set()
        """Probes of which a snapshot counted what is there."""
        self.told: set[str] = set()
        """Texts of the kernel that were judged: the same record in two logs is one event."""
        self._snapshots: list[Snapshot] = []
        self._logs: list[Log] = []
        self._problems: list[Found] = []
        self._blind: dict[str, None] = {}
        self._judged = False

    def look(self, report: ChildReport, name: str, *, late: frozenset[str] = frozenset()) -> None:
        """Take one look in.

        :param name: the input that it was, for what could not be told.
        :param late: faults that leave the answer open, since the machine has just booted and devices come late.
        """
        if report.absent:
            self.blind(f"{name}: {report.absent}")
            return
        probe = f"{report.probe} {len(self._snapshots)}"
        snapshot = report.snapshot(at=0.0, boot_id=BOOT)
        seen = tuple(
            msgspec.structs.replace(one, probe=probe, verdict=Verdict.UNKNOWN, recovery=Recovery.NONE)
            if one.fault in late
            else msgspec.structs.replace(one, probe=probe)
            for one in snapshot.observations
        )
        self._snapshots.append(msgspec.structs.replace(snapshot, probe=probe, observations=seen, blind=()))
        judges = bool(report.covered or report.observations)  # else it only says what it cannot be asked
        self._judged = self._judged or judges
        self.looked = self.looked or judges
        self.counted.add(report.probe)
        for said in report.blind:
            self.blind(said)
        self.gpus |= {gpu.pci: gpu.uuid for gpu in report.inventory.gpus if gpu.uuid and gpu.pci}
        if not self.uuids and report.probe in {"nvidia_smi", "nvml"} and all(gpu.uuid for gpu in report.inventory.gpus):
            self.uuids = tuple(gpu.uuid for gpu in report.inventory.gpus)
        self.nics |= {nic.pci: nic.name for nic in report.inventory.nics if nic.pci}

    def silent(self, probe: str, fault: str, said: str) -> None:
        """Note that a probe of this machine gave no answer."""
        entry = CATALOGUE[FaultName(fault)]
        seen = Observation(
            probe=probe,
            fault=entry.name,
            component=HOST,
            verdict=entry.verdict,
            recovery=entry.recovery,
            at=0.0,
            evidence=evidence(f"{probe}: {said}"),
        )
        name = f"{probe} {len(self._snapshots)}"
        self._snapshots.append(Snapshot(probe=name, at=0.0, boot_id=BOOT, observations=(seen,)))

    def log(self, read: Log) -> None:
        """Take a kernel log in; it is read when the answer is asked for."""
        self._logs.append(read)

    def judged(self) -> None:
        """Note that something was given that says how the machine is."""
        self._judged = True

    def problem(self, fault: str, said: str, then: str = "Take it again on the machine.") -> None:
        """Note that an input tells nothing, or not all that it should: nothing is OK then.

        :param then: what whoever asked can do.
        """
        self._problems.append(no_answer(fault, evidence(said), then))

    def blind(self, said: str) -> None:
        """Note what cannot be told."""
        if len(self._blind) < _MAX_BLIND:
            self._blind[evidence(said)] = None

    def answer(self) -> Diagnosis:
        """Judge everything."""
        findings = self._of_snapshots()
        for read in self._logs:
            findings += self._of_log(read(self))
        if any(finding.suspected for finding in findings):
            self.blind("whether faults that came back in one place were different jobs': a log names processes only")
        told = (*self._problems, *(found(finding) for finding in findings))
        return conclude(told, tuple(self._blind), judged=self._judged)

    def _of_snapshots(self) -> list[Finding]:
        probes = {one.probe: ProbeSettings(judges=frozenset(ConditionType)) for one in self._snapshots}
        settings = TriageSettings(probes=probes)
        state = triage.initial(BOOT, settings)
        for snapshot in self._snapshots:
            for _ in range(_LOOKS):
                state, _ = triage.step(state, snapshot, settings)
        self._mind_overflow(state)
        # It was one look, however often it was put before triage.
        return [msgspec.structs.replace(finding, count=1) for finding in triage.findings(state)]

    def _of_log(self, log: Iterable[Event | NewBoot]) -> list[Finding]:
        """Judge a log by its last boot. Of those before it only what no reboot can have mended still counts."""
        settings = TriageSettings()
        state = self._begun(settings)
        lasting: list[Finding] = []
        for stimulus in log:
            if isinstance(stimulus, NewBoot):
                for finding in triage.findings(state):
                    if finding.recovery.rank > Recovery.REBOOT.rank and finding.verdict is not Verdict.OK:
                        lasting.append(finding)
                    elif finding.verdict is not Verdict.OK:
                        self.blind(f"{finding.fault} on {finding.component} was in an earlier boot: not judged")
                self._mind_overflow(state)
                state = self._begun(settings)
            else:
                state, _ = triage.step(state, stimulus, settings)
        self._mind_overflow(state)
        return [*lasting, *triage.findings(state)]

    def _begun(self, settings: TriageSettings) -> TriageState:
        state = triage.initial(BOOT, settings)
        return state if self.now is None else triage.step(state, Tick(self.now), settings)[0]

    def _mind_overflow(self, state: TriageState) -> None:
        if state.overflow:
            self.problem("ProbeNonsense", f"there is no room for {state.overflow} more findings")
