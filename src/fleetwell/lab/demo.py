"""The whole line on one screen: three faults, one training job that finishes with the loss of an undisturbed run.

Every claim that is printed is checked; the exit code is 0 only when all of them are true.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from rich.console import Console

from fleetwell.kube.client import Client
from fleetwell.kube.config import load
from fleetwell.lab import workloads
from fleetwell.lab.controlplane import ControlPlaneError
from fleetwell.lab.controlplane_build import ControlPlaneBuildError
from fleetwell.lab.demo_job import TrainingJob
from fleetwell.lab.demo_story import NVML_DEADLINE, NVML_INTERVAL, Story
from fleetwell.lab.demo_watch import Narrator, Watch
from fleetwell.lab.host import Settings
from fleetwell.lab.laboratory import LabError, Laboratory
from fleetwell.lab.nvml_build import NvmlBuildError
from fleetwell.lab.site import Site

NODES = 6
AGENT_ARGUMENTS = (
    *("--nvml-interval", f"{NVML_INTERVAL}s", "--nvml-deadline", f"{NVML_DEADLINE}s"),
    *("--sysfs-interval", "5s"),
)
"""Shorter than an agent's defaults: a demo is watched, a fleet is not."""


async def _tell(laboratory: Laboratory, narrator: Narrator) -> int:
    async with Client(load(laboratory.plane.kubeconfig), user_agent="fleetwell-demo") as client:
        job = TrainingJob(laboratory, client)
        async with Watch(client, narrator, job.run_dir) as watch:
            try:
                return await Story(laboratory, watch, narrator, job).tell()
            finally:
                job.stop()


@contextlib.contextmanager
def _folder(root: Path | None) -> Iterator[Path]:
    if root is not None:
        root.mkdir(parents=True, exist_ok=True)
        yield root.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="fleetwell-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(root: Path | None) -> int:
    """Run the demo and give its exit code: 0 only when every claim it makes is true."""
    console = Console(soft_wrap=True)
    narrator = Narrator(console)
    if threading.current_thread() is threading.main_thread():
        # SIGINT too: a shell starts what it puts in the background with Ctrl-C ignored, and Python keeps to that.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupted)
    with _folder(root) as folder:
        laboratory = Laboratory(Site(folder), tied=True, progress=lambda line: narrator.say("lab", line))
        try:
            narrator.title("a Kubernetes control plane and six virtual nodes of eight H100 come up")
            laboratory.up(
                Settings(machine="p5.48xlarge", nodes=NODES, boot_seconds=20.0, provision_seconds=2.0),
                agent_arguments=AGENT_ARGUMENTS,
            )
            laboratory.apply(workloads.policy(hang_tolerated="4s"))
            narrator.say("lab", "6 nodes are in service; the policy `training` is applied, mode Enforce")
            return asyncio.run(_tell(laboratory, narrator))
        except KeyboardInterrupt:
            narrator.say("lab", "interrupted; ending everything")
            return 130
        except TimeoutError as error:
            narrator.say("✗ FALSE", str(error), "bold red")
            kept = keep_logs(laboratory)
            console.print(f"hint: the logs are in {kept}", style="yellow")
            return 1
        except (LabError, ControlPlaneError, ControlPlaneBuildError, NvmlBuildError) as error:
            console.print(f"error: {error}", style="bold red", markup=False)
            return 1
        finally:
            laboratory.down(keep=root is not None)


def keep_logs(laboratory: Laboratory) -> Path:
    """Copy the logs of a lab that goes away to a folder that stays."""
    kept = Path(tempfile.mkdtemp(prefix="fleetwell-demo-logs-"))
    root = laboratory.site.root
    for log in [*root.rglob("*.log"), *root.rglob("events.jsonl")]:
        copy = kept / log.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(log.read_bytes())
    return kept


if __name__ == "__main__":
    sys.exit(run(None))
