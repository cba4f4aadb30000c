"""What the demo tells: three faults and a training job, each claim checked as it is printed."""

from __future__ import annotations

import asyncio
import time

from fleetwell.api.incident import Phase
from fleetwell.api.resources import Incident
from fleetwell.lab import faults, freeze, workloads
from fleetwell.lab.demo_job import RANKS_PER_NODE, TrainingJob
from fleetwell.lab.demo_watch import Narrator, Watch
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.laboratory import Laboratory

NVML_INTERVAL, NVML_DEADLINE = 3, 3
"""Seconds between an agent's looks at NVML in the demo, and until one counts as hung."""


class Story:
    """Tells and checks the demo."""

    def __init__(self, laboratory: Laboratory, watch: Watch, narrator: Narrator, job: TrainingJob) -> None:
        self._lab = laboratory
        self._watch = watch
        self._narrator = narrator
        self._job = job
        self._failed: list[str] = []
        self._rows: list[tuple[Incident, str, str]] = []

    def check(self, claim: str, *, holds: bool) -> None:
        """Print a claim with its truth, and remember one that is false."""
        self._narrator.say("✓" if holds else "✗ FALSE", claim, "green" if holds else "bold red")
        if not holds:
            self._failed.append(claim)

    async def tell(self) -> int:
        """Tell the story and give the exit code."""
        watch = self._watch
        await asyncio.to_thread(self._lab.apply, workloads.serving())
        await watch.until("the serving pod runs", lambda: watch.node_of("serving"), 30)
        self._narrator.title(f"a training job of {2 * RANKS_PER_NODE} ranks on 2 nodes starts under `fleetwell run`")
        await self._job.start()
        await watch.until("the job steps and has checkpointed", lambda: self._job.checkpointed >= 50, 120)
        self._narrator.say("training", f"has checkpointed step {self._job.checkpointed}", "magenta")
        self._job.start_twin()
        await self._row_remap()
        bus = await self._fallen_off_the_bus()
        await self._hung_diagnostic(bus)
        await self._end()
        return self._close()

    async def _row_remap(self) -> None:
        watch, node = self._watch, self._node_of(1)
        self._narrator.title(
            f"fault 1: on {node}, below the running job, memory rows of a GPU can no longer be remapped"
        )
        known = {n.metadata.name for n in watch.nodes.items()}
        self._inject("row-remap-failed", node, 0)
        await watch.until(f"{node} is replaced", lambda: watch.phase(node) is Phase.REPLACED, 120)
        new = next(n.metadata.name for n in watch.nodes.items() if n.metadata.name not in known)
        await watch.until("the job steps again", lambda: len(watch.run.lost) >= 2, 90)
        incident = self._row(node, "fleetwell.io/GPUMemoryHealthy", str(watch.run.lost[1]))
        self.check(f"{node} went to its end as Replaced", holds=_phase(incident) is Phase.REPLACED)
        admission = watch.admission(new)
        self.check(f"{new} took its place, was proved and admitted", holds=_phase(admission) is Phase.RELEASED)
        self.check("the job saved before it left: steps lost 0", holds=watch.run.lost[1] == 0)

    async def _fallen_off_the_bus(self) -> str:
        watch, node = self._watch, self._node_of(0)
        self._narrator.title(f"fault 2: on {node}, the job's other node, a GPU falls off the bus; its rank dies of it")
        self._boot = self._boot_of(node)
        done = self._job.checkpointed
        await watch.until("some steps after a checkpoint", lambda: self._job.checkpointed > done, 60)
        await asyncio.sleep(0.5)
        self._inject("gpu-lost", node, 0)
        await watch.until(f"{node} is drained", lambda: watch.phase(node) is Phase.REMEDYING, 60)
        return node

    async def _hung_diagnostic(self, bus: str) -> None:
        watch = self._watch
        node = watch.node_of("serving")
        unable = freeze.available()
        how = (
            "a frozen filesystem holds it in the kernel: SIGKILL does not end it"
            if unable is None
            else "it sleeps for ever"
        )
        self._narrator.title(f"fault 3: on {node}, where somebody serves, NVML hangs while {bus} is away ({how})")
        began = time.time()
        self._inject("nvml-hang" if unable else "nvml-hang-unkillable", node, None)
        condition = (node, "fleetwell.io/MonitoringHealthy")
        await watch.until(f"{node} reads Unknown", lambda: condition in watch.seen, 30)
        self.check(
            f"the hang was called Unknown {watch.seen[condition] - began:.1f} s after it began: "
            "at most one interval, one deadline and a second",
            holds=watch.seen[condition] - began <= NVML_INTERVAL + NVML_DEADLINE + 1,
        )
        await watch.until(f"{node} is held by the budget", lambda: self._held(node, "Budget"), 60)
        held_while_away = watch.phase(bus) is not Phase.RELEASED
        self.check(f"{node} wants to act and is held by the budget while {bus} is away", holds=held_while_away)
        await watch.until(f"{bus} is back", lambda: watch.phase(bus) is Phase.RELEASED, 120)
        self._row(bus, "fleetwell.io/GPUHealthy", "")
        self.check(f"{bus} was rebooted: its boot id changed", holds=self._boot_of(bus) != self._boot)
        await watch.until(f"{node} is released", lambda: watch.phase(node) is Phase.RELEASED, 150)
        self._row(node, "fleetwell.io/MonitoringHealthy", "-")
        self.check(f"{node} was rebooted, proved and released", holds=_phase(watch.repair(node)) is Phase.RELEASED)

    async def _end(self) -> None:
        watch = self._watch
        self._narrator.title("the job finishes")
        await watch.until("the job is complete", lambda: bool(watch.run.named("run_finished")), 180)
        lost = sum(watch.run.lost[2:])
        self._rows = [(incident, seen, steps or str(lost)) for incident, seen, steps in self._rows]
        self.check(
            f"after the GPU fell off the bus the job went on from its last checkpoint: steps lost {lost}",
            holds=lost > 0,
        )
        complete = await self._job.complete()
        self.check("Kubernetes says the Job is Complete", holds=complete)
        disturbed, undisturbed = await self._job.results()
        self._narrator.say("training", f"loss of the disturbed run    {disturbed.loss}", "magenta")
        self._narrator.say("training", f"loss of an undisturbed run   {undisturbed.loss}", "magenta")
        self.check("both losses and all weights are equal, to the last bit", holds=disturbed == undisturbed)

    def _close(self) -> int:
        self._narrator.console.print()
        self._narrator.console.print(self._table(), highlight=False)
        if self._failed:
            for claim in self._failed:
                self._narrator.say("✗ FALSE", claim, "bold red")
            return 1
        self._narrator.console.print(
            "\nAll of it was a real API server, scheduler and controller-manager; only the GPUs were not there.\n"
            "Go on by hand: [bold]fleetwell lab up[/], then [bold]fleetwell lab inject[/] and "
            "[bold]kubectl get incidents[/]; docs/first-hour.md says what to do on a cluster of yours."
        )
        return 0

    def _table(self) -> str:
        """Lay the incidents out, in seconds since the start."""
        head = ("fault", "node", "seen", "quarantined", "drained", "repaired", "released", "steps lost", "ended as")
        rows: list[tuple[str, ...]] = [head]
        for incident, seen, lost in self._rows:
            status = incident.status
            if status is None:
                continue
            times = status.timeline
            stamps = [times.quarantined, times.drained, times.remedied, times.ended]
            cells = [f"{self._narrator.since(at.timestamp()):.1f}s" if at else "-" for at in stamps]
            fault = status.findings[0].fault if status.findings else ""
            rows.append((fault, incident.spec.node_name, seen, *cells, lost, status.phase.value))
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(["What happened, in seconds since the start:", "", *lines])

    def _inject(self, fault: str, node: str, gpu: int | None) -> None:
        lines = faults.inject(self._hardware(node), fault, gpu)
        shown = lines[0] if lines else f"{fault} (the kernel log says nothing)"
        self._narrator.say(node, f"kernel: {shown}" if lines else shown, "red")

    def _row(self, node: str, condition: str, lost: str) -> Incident:
        incident = self._watch.repair(node)
        if incident is None:
            raise LookupError(f"{node} has no incident")
        seen = self._watch.seen.get((node, condition))
        self._rows.append((incident, f"{self._narrator.since(seen):.1f}s" if seen else "-", lost))
        return incident

    def _held(self, node: str, reason: str) -> bool:
        incident = self._watch.repair(node)
        return incident is not None and (incident.metadata.name, reason) in self._watch.holds

    def _node_of(self, index: int) -> str:
        pod = self._watch.pod_on(index)
        return pod.spec.node_name if pod is not None else ""

    def _boot_of(self, node: str) -> str:
        found = self._watch.nodes.get(node)
        return found.status.node_info.boot_id if found is not None else ""

    def _hardware(self, node: str) -> Hardware:
        return Hardware(self._lab.site.node(node).host)


def _phase(incident: Incident | None) -> Phase | None:
    return incident.status.phase if incident is not None and incident.status is not None else None
