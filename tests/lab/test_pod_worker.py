"""One pod of the lab from its binding to its end, against an API server that only notes what it is told."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio

from fleetwell.agent import runtime_files
from fleetwell.agent.pods import Owners
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.kube.client import Client
from fleetwell.kube.objects import Container, ObjectMeta, Pod, PodSpec
from fleetwell.kube.pods import EnvVar
from fleetwell.lab import freeze, pod_worker
from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.devices import Allocations
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.pod_worker import PodWorker

UID = "5f0c9f5e-1f2a-4b7e-9d2a-6d1b5f3c2a10"
VOLUME = {
    "name": "fleetwell",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "audience": "fleetwell.io/job-reports"}},
            {"configMap": {"name": "kube-root-ca.crt"}},
        ]
    },
}


class Server:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.deleted: list[int | None] = []
        self.tokens: list[tuple[str, tuple[str, ...]]] = []

    async def patch(self, _resource: Any, _name: str, body: Any, **_others: Any) -> None:
        self.phases.append(body["status"]["phase"])

    async def delete(self, *_what: Any, grace_period_seconds: int | None = None, **_others: Any) -> None:
        self.deleted.append(grace_period_seconds)

    async def create_token(self, account: str, _namespace: str, *, audiences: list[str], **_others: Any) -> str:
        self.tokens.append((account, tuple(audiences)))
        return f"token for {', '.join(audiences) or 'the API server'}"


class Ground:
    """One node on which pods are started."""

    def __init__(self, hardware: Hardware, folder: Path) -> None:
        self.hardware = hardware
        self.folder = folder
        self.server = Server()
        self.workers: list[PodWorker] = []

    def start(
        self, script: str, *, volumes: list[dict[str, Any]] | None = None, env: list[EnvVar] | None = None
    ) -> PodWorker:
        container = Container(name="main", command=["/bin/sh", "-c", script], env=env or [])
        pod = Pod(
            metadata=ObjectMeta(name="train-0", namespace="ml", uid=UID),
            spec=PodSpec(containers=[container], restart_policy="Never", volumes=volumes or []),
        )
        worker = PodWorker(
            pod,
            client=cast("Client", self.server),
            plane=cast("ControlPlane", SimpleNamespace(url="https://127.0.0.1:6443")),
            hardware=self.hardware,
            allocations=Allocations(),
            folder=self.folder / "pod",
            address="127.1.0.1",
            ended=lambda _uid: None,
        )
        self.workers.append(worker)
        return worker

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.02)

    def delete(self, worker: PodWorker) -> None:
        gone = msgspec.structs.replace(
            worker.pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z", deletion_grace_period_seconds=0
        )
        worker.changed(msgspec.structs.replace(worker.pod, metadata=gone))


@pytest_asyncio.fixture
async def ground(small: Hardware, tmp_path: Path) -> AsyncIterator[Ground]:
    made = Ground(small, tmp_path)
    yield made
    for worker in made.workers:
        worker.lose_power()
        await asyncio.gather(worker.task, return_exceptions=True)


async def test_a_pod_runs_to_its_end_and_its_object_goes_when_it_is_deleted(ground: Ground) -> None:
    worker = ground.start("exit 0")
    await ground.until(lambda: "Succeeded" in ground.server.phases)
    assert ground.server.deleted == []
    ground.delete(worker)
    await worker.task
    assert ground.server.deleted == [0]


async def test_a_process_of_a_pod_can_be_told_by_its_cgroup_while_it_runs(ground: Ground) -> None:
    worker = ground.start("sleep 300")
    await ground.until(lambda: bool(ground.server.phases))
    (process,) = worker._processes.values()
    booted = ground.hardware.state.booted_at
    line = f"NVRM: Xid (PCI:0000:05:00): 31, pid={process.pid}, name=python, MMU Fault"
    owners = Owners(ground.hardware.root / "proc", lambda: booted)
    seen = KernelLogReader().read(line, max(time.time(), booted) + 5)
    assert owners.of(seen) == {process.pid: f"pod {UID}"}
    ground.delete(worker)
    await worker.task
    assert not (ground.hardware.root / f"proc/{process.pid}").exists()


async def test_a_token_that_a_volume_asks_for_lies_in_the_pods_folder(ground: Ground) -> None:
    env = [EnvVar(name="TOKEN", value="$(FLEETWELL_LAB_VOLUMES)/fleetwell/token")]
    ground.start('cat "$TOKEN"; echo; env', volumes=[VOLUME, {"name": "other", "emptyDir": {}}], env=env)
    await ground.until(lambda: "Succeeded" in ground.server.phases)
    said = (ground.folder / "pod/main.log").read_text().splitlines()
    assert said[0] == "token for fleetwell.io/job-reports"
    assert "KUBERNETES_SERVICE_PORT=6443" in said
    assert ground.server.tokens == [("default", ("fleetwell.io/job-reports",))]
    assert (ground.folder / "pod/volumes/fleetwell/token").stat().st_mode & 0o077 == 0


@pytest.mark.root
async def test_a_pod_stays_terminating_while_the_kernel_holds_a_process_of_it(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S43: an object that goes while its process is there would let others have the GPU, and a reboot look safe."""
    monkeypatch.setattr(pod_worker, "KILL_WAIT_SECONDS", 0.2)
    why_not = freeze.available()
    if why_not is not None:
        pytest.skip(why_not)
    filesystem = freeze.FrozenFilesystem(tmp_path / "frozen")
    try:
        worker = ground.start(f": > {filesystem.freeze()}")
        await ground.until(lambda: bool(ground.server.phases))
        (process,) = worker._processes.values()
        ground.delete(worker)
        await asyncio.sleep(1.0)
        assert ground.server.deleted == []
        assert set(ground.server.phases) == {"Running"}
        assert process.left() == [process.pid]
    finally:
        filesystem.dispose()
    async with asyncio.timeout(10):
        await worker.task
    assert ground.server.deleted == [0]
    assert json.dumps(ground.server.phases[-1]) == '"Failed"'


@pytest.mark.root
async def test_power_that_goes_waits_for_no_process(ground: Ground, tmp_path: Path) -> None:
    why_not = freeze.available()
    if why_not is not None:
        pytest.skip(why_not)
    filesystem = freeze.FrozenFilesystem(tmp_path / "frozen")
    try:
        worker = ground.start(f": > {filesystem.freeze()}")
        await ground.until(lambda: bool(ground.server.phases))
        worker.lose_power()
        async with asyncio.timeout(1):
            await asyncio.gather(worker.task, return_exceptions=True)
        assert ground.server.deleted == []
    finally:
        filesystem.dispose()


async def test_the_termination_message_is_on_the_node_until_the_pod_is_gone(ground: Ground) -> None:
    worker = ground.start('echo "lost a GPU" > "$FLEETWELL_TERMINATION_LOG"; exit 3')
    await ground.until(lambda: "Failed" in ground.server.phases)
    kept = ground.hardware.root / "var/lib/kubelet/pods" / UID
    (message,) = (kept / "containers/main").iterdir()
    assert message.read_text() == "lost a GPU\n"
    ground.delete(worker)
    await worker.task
    assert not kept.exists()


async def test_how_a_container_ended_is_on_the_node_until_the_pod_is_gone(ground: Ground) -> None:
    worker = ground.start("kill -ABRT $$$$")
    await ground.until(lambda: "Failed" in ground.server.phases)
    (link,) = (ground.hardware.root / "var/log/containers").iterdir()
    assert link.readlink() == Path(f"/var/log/pods/ml_train-0_{UID}/main/0.log")
    found = runtime_files.find(str(ground.hardware.root), runtime_files.RUNTIMES, link.stem[-64:])
    run = found.read() if found is not None else None
    assert run is not None
    assert run.code == 134
    ground.delete(worker)
    await worker.task
    assert not link.is_symlink()
    assert runtime_files.find(str(ground.hardware.root), runtime_files.RUNTIMES, link.stem[-64:]) is None
