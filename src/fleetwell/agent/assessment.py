"""What the agent holds of its node: triage's state, how each probe fares, what hardware was seen.

It decides nothing by itself: stimuli go into triage, and what comes out is put into the API's words.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

import msgspec

from fleetwell import __version__
from fleetwell.agent.boot import Boot
from fleetwell.api.fields import from_epoch
from fleetwell.api.node_health import Inventory, Machine, NodeFinding, NodeHealthStatus, ProbeStatus
from fleetwell.health import triage
from fleetwell.health.conditions import NOT_YET_CHECKED, Condition
from fleetwell.health.stimuli import Adopt, Event, ProbeBlind, ProbeFailed, Stimulus, Tick
from fleetwell.health.triage_state import Change, ProbeSettings, TriageSettings
from fleetwell.health.vocabulary import BootId, ConditionType, Finding, Snapshot, Verdict
from fleetwell.probes.inventory import Expected, MachineMemory, expected, overruled, remember
from fleetwell.probes.protocol import InventorySeen

JUDGES = {
    "nvml": frozenset({ConditionType.GPU, ConditionType.GPU_MEMORY, ConditionType.INTERCONNECT, ConditionType.THERMAL}),
    "pci": frozenset({ConditionType.GPU}),
    "efa": frozenset({ConditionType.NETWORK}),
    "infiniband": frozenset({ConditionType.NETWORK}),
    "nvidia_smi": frozenset[ConditionType](),
    "dcgm": frozenset[ConditionType](),
    "operands": frozenset[ConditionType](),
    "allocatable": frozenset[ConditionType](),
    "maintenance": frozenset[ConditionType](),
    "kernel_log": frozenset[ConditionType](),
}
"""Which conditions each probe stands behind: those are not True before it has looked, nor while it is silent.

The kernel log says what happened, never that all is well. ``nvidia-smi`` and DCGM are second opinions: what they find
counts, and that they find nothing stands behind nothing.
"""


class Assessment:
    """One node, as its agent sees it.

    :param said: what the operator says that the node must have; the policy comes before it.
    :param on_change: called after each stimulus that may have changed what is published.
    """

    def __init__(
        self,
        boot: Boot,
        memory: MachineMemory,
        said: Expected,
        *,
        on_change: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.boot = boot
        self.memory = memory
        self.node_uid = ""
        self.provider_id = ""
        self.instance_type = boot.instance_type
        self.requested = Expected()
        """What the machine was launched with, as far as its Node says it."""
        self._said = said
        self._policy = Expected()
        self._on_change = on_change
        self._wall = wall
        self._seen = Inventory()
        self._adapters: dict[str, int] = {}
        self._probes: dict[str, ProbeStatus] = {}
        self._settings = self._triage_settings()
        self._state = triage.initial(boot.boot_id, self._settings)

    @property
    def expected(self) -> Expected:
        """What this node must have."""
        return expected(overruled(self._said, self._policy), self.instance_type, self.memory, self.requested)

    @property
    def found(self) -> Inventory:
        """What the latest looks saw; -1 where none did."""
        return self._seen

    @property
    def efa_seen(self) -> int | None:
        """EFA interfaces that the latest look saw; None where none did in this run of the agent."""
        return self._adapters.get("efa")

    @property
    def infiniband_seen(self) -> int | None:
        """The same of InfiniBand and RoCE adapters."""
        return self._adapters.get("infiniband")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found, the worst first."""
        return triage.findings(self._state)

    def adopt(self, status: NodeHealthStatus, conditions: tuple[Condition, ...], events_until: float) -> None:
        """Take over what an earlier agent published of this machine, before anything is looked at."""
        if status.machine.serial != self.boot.serial:
            return  # Another machine had this name.
        same_node = status.node_uid == self.node_uid
        if same_node and status.boot_id == self.boot.boot_id:
            self._probes = {probe.name: probe for probe in status.probes}
            self._seen = status.seen
        self.take(
            Adopt(
                boot_id=self.boot.boot_id if status.boot_id == self.boot.boot_id and same_node else _OTHER_BOOT,
                findings=tuple(finding.finding() for finding in status.findings),
                conditions=conditions if same_node else (),
                answered=frozenset(self.memory.answered),
                events_until=events_until,
            )
        )

    def take(self, stimulus: Stimulus) -> Change:
        """Give triage something to judge."""
        self._state, change = triage.step(self._state, stimulus, self._settings)
        match stimulus:
            case Snapshot(blind=questions) if questions and not stimulus.covered:
                self._probe(stimulus.probe, "Blind", questions[0])
            case Snapshot():
                worst = max((one.verdict for one in stimulus.observations), key=_severity, default=Verdict.OK)
                first = stimulus.observations[0].evidence if stimulus.observations else ""
                self._probe(stimulus.probe, worst.value, first)
            case ProbeFailed():
                self._probe(stimulus.probe, Verdict.UNKNOWN.value, f"{stimulus.fault}: {stimulus.evidence}")
            case ProbeBlind():
                self._probe(stimulus.probe, "Blind", stimulus.evidence)
            case Event() if not change:
                return change  # Only counts: a flood of equal lines is no flood of writes, and each tick looks at all.
            case _:
                pass
        self._on_change()
        return change

    def pause(self, probe: str, why: str) -> None:
        """Note that a probe does not look for now: what it found before stays."""
        self._probe(probe, "Paused", why)
        self._on_change()

    def paused_since(self, probe: str) -> float | None:
        """Tell since when a probe is paused, an earlier agent of this boot included; None where it is not."""
        status = self._probes.get(probe)
        return status.since.timestamp() if status is not None and status.state == "Paused" else None

    def is_owed(self, probe: str) -> bool:
        """Say whether a probe has to find something here: it is required, or has done so before on this machine."""
        known = self._settings.probes.get(probe)
        return probe in self.memory.answered or (known is not None and known.required)

    def tick(self) -> None:
        """Let time do its part."""
        self.take(Tick(now=self._wall()))

    def remember(self, probe: str, seen: InventorySeen) -> bool:
        """Note the hardware that a probe saw; say whether that is new."""
        before = self.memory
        self.memory = remember(before, seen, probe, self.expected)
        gpus = len(seen.gpus) if probe == "nvml" else self._seen.gpus
        if probe in {"efa", "infiniband"}:
            self._adapters[probe] = len(seen.nics)
        nics = sum(self._adapters.values()) if self._adapters else self._seen.nics
        self._seen = Inventory(gpus=gpus, nics=nics)
        if self.memory == before:
            return False
        self.expect_anew()
        return True

    def expect_anew(self) -> None:
        """Work out anew which probes are required, after what the node must have may have changed."""
        wanted = self._triage_settings()
        if wanted != self._settings:
            self._settings = wanted
            self.tick()

    def policy_says(self, word: Expected) -> None:
        """Take what the node's policy says that it must have; the next look is held against it."""
        if word == self._policy:
            return
        self._policy = word
        self.expect_anew()
        self._on_change()

    def conditions(self) -> tuple[Condition, ...]:
        """Give the conditions to publish; one that nothing on this machine could ever judge is left out."""
        blind = {name for name, probe in self._probes.items() if probe.state == "Blind"}
        judged = frozenset[ConditionType]().union(*(kinds for name, kinds in JUDGES.items() if name not in blind))
        return tuple(
            condition
            for condition in triage.conditions(self._state, self._wall())
            if condition.reason != NOT_YET_CHECKED or condition.type in judged | {ConditionType.MONITORING}
        )

    def status(self) -> NodeHealthStatus:
        """Give the status of the NodeHealth."""
        must, found = self.expected, self.findings
        worst = max((one.verdict for one in found), key=_severity, default=Verdict.OK)
        settled = triage.settled(self._state)
        if worst is Verdict.OK and not settled:
            worst = Verdict.UNKNOWN
        return NodeHealthStatus(
            node_uid=self.node_uid,
            boot_id=self.boot.boot_id,
            agent_version=__version__,
            machine=Machine(
                provider_id=self.provider_id,
                serial=self.boot.serial,
                instance_type=self.instance_type,
                gpus=tuple(sorted(self.memory.gpus)),
            ),
            expected=Inventory(gpus=_count(must.gpus), nics=_count(must.adapters)),
            seen=self._seen,
            settled=settled,
            verdict=worst,
            findings=tuple(NodeFinding.of(one) for one in found),
            probes=tuple(self._probes[name] for name in sorted(self._probes)),
            blind=tuple(f"{probe}: {said}" for probe, all_said in self._state.blind.items() for said in all_said),
            summary=_summary(found, self._seen),
        )

    def _probe(self, name: str, state: str, message: str) -> None:
        before = self._probes.get(name)
        now = from_epoch(self._wall()).replace(microsecond=0)
        since = before.since if before is not None and before.state == state else now
        self._probes[name] = ProbeStatus(name=name, state=state, since=since, message=message)

    def _triage_settings(self) -> TriageSettings:
        must = self.expected
        required = {
            "nvml": bool(must.gpus),
            "pci": bool(must.gpus),
            "efa": bool(must.nics),
            "infiniband": bool(must.infiniband),
            "kernel_log": True,
        }
        return TriageSettings(
            probes={
                name: ProbeSettings(judges=kinds, required=required.get(name, False)) for name, kinds in JUDGES.items()
            }
        )


_OTHER_BOOT = BootId("")


def without_counts(status: NodeHealthStatus) -> NodeHealthStatus:
    """Leave out what changes with every repeated line and asks for nothing: it is written seldom."""
    epoch = dt.datetime.fromtimestamp(0, dt.UTC)
    return msgspec.structs.replace(
        status,
        findings=tuple(
            msgspec.structs.replace(one, count=0, last_seen=epoch, evidence=one.evidence[:1]) for one in status.findings
        ),
        probes=tuple(msgspec.structs.replace(one, message="") for one in status.probes),
    )


def _severity(verdict: Verdict) -> int:
    return verdict.severity


def _count(number: int | None) -> int:
    return -1 if number is None else number


def _summary(found: tuple[Finding, ...], seen: Inventory) -> str:
    if found:
        worst = found[0]
        others = len({(one.fault, one.component) for one in found}) - 1  # however many probes see the same
        more = f" (and {others} more)" if others else ""
        return f"{worst.fault} on {worst.component}, asks for {worst.recovery}{more}"
    parts = [f"{number} {what}" for number, what in ((seen.gpus, "GPUs"), (seen.nics, "NICs")) if number >= 0]
    return ", ".join(parts) or "nothing was seen yet"
