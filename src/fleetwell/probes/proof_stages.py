"""The stages of a proof, one after the other within its deadline, and what their workers' answers add up to."""

from __future__ import annotations

import enum
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from fleetwell.probes import (
    launch,
    proof_clocks,
    proof_compute,
    proof_crew,
    proof_diagnostic,
    proof_links,
    proof_memory,
    proof_rows,
)
from fleetwell.probes.proof_agreement import agreement
from fleetwell.probes.proof_rows import Gpu, Measured, Row, Told
from fleetwell.probes.proof_thresholds import CPU, Level, thresholds
from fleetwell.probes.proof_time import Time
from fleetwell.probes.proof_worker import UNUSABLE, Settings, component

MARGIN_SHARE = 0.05
MARGIN_SECONDS = 10.0
"""What is kept of the deadline, at most, to end workers and to print in."""
DEVICES_SHARE = 0.6
"""Part of the time that the test of the single devices may take where others come after it."""
LINKS_SHARE = 0.4
"""Part of what is then left that each test of links may take."""
LOOPBACK = {
    "NCCL_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NET": "Socket",
    "NCCL_NET_PLUGIN": "none",
}
"""The ranks of a collective meet over the loopback interface: the network's adapters are not under test here."""
CPU_DEVICES = 3
"""Stand-ins for devices where the processor computes and devices are compared: enough for a majority."""
CPU_RANKS = 2


class Device(enum.StrEnum):
    """Where the test computes."""

    AUTO = "auto"
    """CUDA; the CPU only where NVML is a virtual node's. A machine that shows no GPU has proved nothing."""
    CUDA = "cuda"
    CPU = "cpu"


class Asked(msgspec.Struct, frozen=True):
    """What the command line says."""

    level: str
    host_root: Path = Path("/")
    expected: int | None = None
    device: Device = Device.AUTO
    deadline: float = 300.0


class Proof:
    """Runs the stages and joins what they tell."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._time = Time(asked.deadline - min(MARGIN_SECONDS, asked.deadline * MARGIN_SHARE))
        virtual = "FLEETWELL_NVML_STATE" in os.environ
        self._cpu = asked.device is Device.CPU or (asked.device is Device.AUTO and virtual)

    def run(self) -> Iterator[Row]:
        """Give the rows of all checks."""
        told = self._crew({"driver": self._settings("driver")}, self._time.left())["driver"]
        rows = [one for one in told if isinstance(one, Row)]
        gpus = tuple(one for one in told if isinstance(one, Gpu))
        if not rows:
            rows = [Row("driver", "host", "UNKNOWN", "the driver was asked and nothing was answered")]
        yield from rows
        if any(row.check != "driver" for row in rows):
            return  # It has said why nothing can be computed.
        if not gpus and not self._cpu:
            yield Row(proof_compute.CHECK, "host", "UNKNOWN", "the driver shows no GPU: nothing was computed")
            return
        level = thresholds().level(self._asked.level, cpu=self._cpu)
        if self._cpu:
            gpus = (Gpu(uuid="", name=CPU),) * (CPU_DEVICES if level.sustained else 1)
        yield from self._all(gpus, level)

    def _all(self, gpus: tuple[Gpu, ...], level: Level) -> Iterator[Row]:
        measured: list[Measured] = []
        rows = list(self._devices(gpus, level, measured))
        yield from rows
        yield from agreement(measured, thresholds().limits.neighbour_share)
        ill = {row.component for row in rows if row.verdict != "OK"}
        well = tuple(gpu for gpu in gpus if component(gpu) not in ill)
        for wanted, check, run in (
            (level.copy_mib, proof_links.PEER_LINKS, self._links),
            (level.collective_mib, proof_links.COLLECTIVE, self._collective),
        ):
            if wanted and len(gpus) > 1 and len(well) < 2:
                yield Row(check, "host", "UNKNOWN", f"not run: {len(well)} of {len(gpus)} devices can be used for it")
            elif wanted and len(well) > 1:
                yield from run(well, level)
        if level.diagnostics:
            choices = thresholds().diagnostics_of(level)
            yield from proof_diagnostic.diagnostic(self._asked.host_root, choices, self._time.left())

    def _devices(self, gpus: tuple[Gpu, ...], level: Level, measured: list[Measured]) -> Iterator[Row]:
        within = self._time.left() * (DEVICES_SHARE if level.sustained else 1.0)
        jobs = {str(at): self._settings("device", (gpu,)) for at, gpu in enumerate(gpus)}
        owed = [proof_memory.CHECK, proof_compute.CHECK]
        owed += [proof_clocks.CHECK] if level.sustained and not self._cpu else []
        owed += [proof_links.HOST_LINK] if level.copy_mib else []
        for at, told in self._crew(jobs, within).items():
            measured += [one for one in told if isinstance(one, Measured)]
            yield from _complete(told, owed, component(gpus[int(at)]))

    def _links(self, gpus: tuple[Gpu, ...], level: Level) -> Iterator[Row]:
        del level
        check = proof_links.PEER_LINKS
        told = self._crew({check: self._settings("links", gpus)}, self._time.left() * LINKS_SHARE)[check]
        yield from _complete(told, [check], "host")

    def _collective(self, gpus: tuple[Gpu, ...], level: Level) -> Iterator[Row]:
        del level
        gpus = gpus[:CPU_RANKS] if self._cpu else gpus
        with tempfile.TemporaryDirectory(prefix="fleetwell-proof-", ignore_cleanup_errors=True) as folder:
            jobs = {
                str(rank): msgspec.structs.replace(
                    self._settings("collective", gpus), rank=rank, ranks=len(gpus), store=str(Path(folder) / "ranks")
                )
                for rank in range(len(gpus))
            }
            answers = self._crew(jobs, self._time.left() * LINKS_SHARE)
        rates: dict[str, float] = {}
        wrong: dict[str, int] = {}
        rows: list[Row] = []
        for rank, told in answers.items():
            on = component(gpus[int(rank)])
            name = f"rank {rank} on {on}" if self._cpu else on
            rows += [one for one in told if isinstance(one, Row)]
            for one in told:
                if isinstance(one, Measured) and one.what == proof_links.WRONG:
                    wrong[name] = int(one.rate)
                elif isinstance(one, Measured):
                    rates[name] = one.rate
            if not told:
                rows.append(Row(proof_links.COLLECTIVE, on, "UNKNOWN", "it gave no result"))
        yield from rows
        if len(rates) == len(gpus):
            yield from proof_links.collective(rates, wrong, thresholds().model(gpus[0].name), gpus[0].name)

    def _settings(self, stage: str, gpus: tuple[Gpu, ...] = ()) -> Settings:
        return Settings(
            stage=stage,
            level=self._asked.level,
            host_root=str(self._asked.host_root),
            cpu=self._cpu,
            expected=self._asked.expected,
            devices=gpus,
            proof=os.getpid(),
        )

    def _crew(self, jobs: Mapping[str, Settings], within: float) -> dict[str, list[Told]]:
        """Run workers side by side; what went wrong with one is a row of its own behind what it had told."""
        started = {
            name: (
                launch.module("proof_worker", msgspec.structs.replace(job, deadline=within).encode()),
                self._environment(job),
            )
            for name, job in jobs.items()
        }
        answers: dict[str, list[Told]] = {}
        for name, ended in proof_crew.run(started, within).items():
            told, nonsense = proof_rows.read(ended.output)
            trouble = ended.trouble or nonsense
            if trouble:
                job = jobs[name]
                on = component(job.devices[job.rank]) if job.stage in {"device", "collective"} else "host"
                told.append(Row(_CHECKS.get(job.stage, UNUSABLE), on, "UNKNOWN", f"it did not end well: {trouble}"))
            answers[name] = told
        return answers

    def _environment(self, job: Settings) -> dict[str, str]:
        env = {**os.environ, **launch.environment()}
        if job.devices and not self._cpu:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in job.devices)
        return env | LOOPBACK if job.stage == "collective" else env


_CHECKS = {"driver": "driver", "links": proof_links.PEER_LINKS, "collective": proof_links.COLLECTIVE}


def _complete(told: list[Told], owed: list[str], on: str) -> Iterator[Row]:
    """Give a worker's rows, and one for each check that it owes and did not give: never a pass by silence."""
    rows = [one for one in told if isinstance(one, Row)]
    yield from rows
    if any(row.verdict == "BAD" or row.check == UNUSABLE for row in rows):
        return  # It stopped there, and has said why.
    given = {row.check for row in rows}
    for check in owed:
        if check not in given:
            yield Row(check, on, "UNKNOWN", "it gave no result")
