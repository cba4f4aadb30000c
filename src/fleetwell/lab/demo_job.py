"""The demo's training job: a Kubernetes Job under ``fleetwell run``, and the same training undisturbed beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import msgspec

from fleetwell.kube.client import Client
from fleetwell.kube.resource import JOBS
from fleetwell.lab import workloads
from fleetwell.lab.laboratory import Laboratory
from fleetwell.lab.ports import free_ports
from fleetwell.lab.site import example

JOB = "train"
RANKS_PER_NODE = 2
STEPS = 1000
STEP_MS = 40
EVERY = 50


class Result(msgspec.Struct, frozen=True):
    """What a run wrote at its end."""

    loss: str
    weights_sha256: str
    steps: int
    world: int


class TrainingJob:
    """The job and its undisturbed twin."""

    def __init__(self, laboratory: Laboratory, client: Client) -> None:
        self._lab = laboratory
        self._client = client
        self.run_dir = laboratory.site.shared / JOB
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._twin_dir = laboratory.site.shared / "undisturbed"
        self._twin: subprocess.Popen[bytes] | None = None

    @property
    def checkpointed(self) -> int:
        """The newest step that is committed to the checkpoint folder."""
        folders = (self.run_dir / "checkpoints").glob("step-*")
        return max((int(f.name.partition("-")[2]) for f in folders if f.name.partition("-")[2].isdigit()), default=0)

    async def start(self) -> None:
        """Create the Job."""
        (port,) = free_ports(1)
        job = workloads.training_job(
            JOB,
            example("train_ddp.py"),
            self.run_dir,
            f"127.0.0.1:{port}",
            nodes=2,
            ranks_per_node=RANKS_PER_NODE,
            arguments=_arguments(STEP_MS),
        )
        await asyncio.to_thread(self._lab.apply, job)

    def start_twin(self) -> None:
        """Start the same training undisturbed, with what time the processor has left."""
        if self._twin is not None:
            return
        self._twin_dir.mkdir(exist_ok=True)
        world = str(2 * RANKS_PER_NODE)
        argv = [sys.executable, "-m", "fleetwell", "run", "--nproc-per-node", world, "--run-dir", str(self._twin_dir)]
        with (self._twin_dir / "log").open("wb") as log:
            self._twin = subprocess.Popen(
                ["nice", "-n", "15", *argv, str(example("train_ddp.py")), *_arguments(0)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def stop(self) -> None:
        """End the undisturbed training if it still runs."""
        if self._twin is not None and self._twin.poll() is None:
            self._twin.send_signal(signal.SIGTERM)
            try:
                self._twin.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._twin.pid, signal.SIGKILL)

    async def complete(self) -> bool:
        """Wait until the Job controller has counted both pods, and tell whether it calls the Job complete."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            job: dict[str, Any] = await self._client.get(JOBS, JOB, "default")
            for condition in job.get("status", {}).get("conditions", []):
                if condition["type"] in {"Complete", "Failed"} and condition["status"] == "True":
                    return bool(condition["type"] == "Complete")
            await asyncio.sleep(0.3)
        return False

    async def results(self) -> tuple[Result, Result]:
        """Give the results of the job and of its undisturbed twin, waiting for the twin.

        :raises TimeoutError: one of them is not there in time.
        """
        self.start_twin()
        deadline = time.monotonic() + 120
        wanted = (self.run_dir / "result.json", self._twin_dir / "result.json")
        while not all(path.exists() for path in wanted):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no result of the undisturbed run; see {self._twin_dir / 'log'}")
            await asyncio.sleep(0.2)
        disturbed, undisturbed = (msgspec.json.decode(path.read_bytes(), type=Result) for path in wanted)
        return disturbed, undisturbed


def _arguments(step_ms: int) -> list[str]:
    return ["--steps", str(STEPS), "--step-ms", str(step_ms), "--every", str(EVERY)]
