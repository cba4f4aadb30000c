"""Runs one pod of the lab from its binding to its end, and reports it as a kubelet does.

One task per pod. It knows three ends: the containers end by themselves, the pod is deleted (SIGTERM, grace, SIGKILL,
then the object goes), or the node loses power (everything is killed and nothing is reported until the next boot).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from fleetwell.kube.client import Client
from fleetwell.kube.errors import Conflict, KubeError, NotFound
from fleetwell.kube.objects import Container, Pod
from fleetwell.kube.resource import PODS
from fleetwell.lab import cgroups, container_records, pod_environment
from fleetwell.lab.container_records import ContainerRecord
from fleetwell.lab.containers import KILL_WAIT_SECONDS, ContainerProcess, Exit
from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.devices import Allocations
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.pod_tokens import PodTokens
from fleetwell.lab.site import DEVICE_RESOURCE

log = structlog.get_logger(__name__)

DEVICE_WAIT_SECONDS = 60.0
_RESTART_BACKOFF = (0.5, 1.0, 2.0, 5.0, 10.0)


class PodWorker:
    """One pod on one node."""

    def __init__(
        self,
        pod: Pod,
        *,
        client: Client,
        plane: ControlPlane,
        hardware: Hardware,
        allocations: Allocations,
        folder: Path,
        address: str,
        ended: Callable[[str], None],
    ) -> None:
        self.pod = pod
        self._client = client
        self._plane = plane
        self._hardware = hardware
        self._allocations = allocations
        self._folder = folder
        self._address = address
        self._ended = ended
        self._stop = asyncio.Event()
        self._processes: dict[str, ContainerProcess] = {}
        self._statuses: dict[str, dict[str, Any]] = {}
        self._started_at = _now()
        self._power = True
        self._vanished = False
        self.task = asyncio.create_task(self._run(), name=f"pod {pod.metadata.namespace}/{pod.metadata.name}")

    def changed(self, pod: Pod) -> None:
        """Take a newer form of the pod; a deletion begins its end."""
        self.pod = pod
        if self._deleted:
            self._stop.set()

    def vanished(self) -> None:
        """Take note that the object is gone: what still runs is killed."""
        self._vanished = True
        self._kill()
        self._stop.set()

    def terminate(self) -> None:
        """Begin an orderly end, as when the node shuts down."""
        self._stop.set()

    def lose_power(self) -> None:
        """End at once and tell nobody."""
        self._power = False
        self._kill()
        for process in self._processes.values():
            cgroups.hide(self._hardware.root, process.pid)
        self.task.cancel()
        self._allocations.give_back(self.pod.metadata.uid)

    async def _run(self) -> None:
        try:
            await self._prepare_and_run()
        except NotFound:
            log.debug("pod is gone", pod=self.pod.metadata.name)
        except (KubeError, OSError, ValueError) as error:
            log.warning("pod cannot be run", pod=self.pod.metadata.name, why=str(error))
            await self._finish("Failed", reason="LabKubelet", message=str(error))
        finally:
            self._kill()
            if self._power:
                if self._deleted or self._vanished:
                    folder = pod_environment.kubelets_folder(self._hardware, self.pod)
                    shutil.rmtree(folder, ignore_errors=True)
                    container_records.forget(self._hardware.root, self.pod)
                self._allocations.give_back(self.pod.metadata.uid)
                self._ended(self.pod.metadata.uid)

    async def _prepare_and_run(self) -> None:
        if self.pod.status.phase in {"Succeeded", "Failed"}:
            await self._until_deleted()
            return
        if self.pod.status.phase == "Running" and self.pod.spec.restart_policy != "Always":
            # It ran when the power went: its processes are gone, and so is how they ended.
            await self._finish("Failed", reason="ContainerStatusUnknown", message="the node was restarted", code=137)
            await self._until_deleted()
            return
        devices = await self._take_devices()
        if devices is None:
            await self._finish("Failed", reason="UnexpectedAdmissionError", message="not enough healthy GPUs")
            await self._until_deleted()
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        tokens, refresh = PodTokens(self._client, self.pod, self._plane, self._folder), None
        if tokens.wanted:
            await tokens.write_first(self._stop)
            refresh = asyncio.create_task(tokens.keep())
        try:
            runs = [asyncio.create_task(self._keep(container, devices)) for container in self.pod.spec.containers]
            exits = await asyncio.gather(*runs)
        finally:
            if refresh is not None:
                refresh.cancel()
        if not self._deleted and self.pod.spec.restart_policy == "Always":
            return  # the node shuts down; it starts this pod again after its boot
        self._allocations.give_back(self.pod.metadata.uid)  # A pod that has ended holds none, though it is still shown.
        failed = [exit_ for exit_ in exits if exit_.code != 0]
        await self._finish("Failed" if failed else "Succeeded")
        await self._until_deleted()

    async def _take_devices(self) -> tuple[str, ...] | None:
        wanted = {c.name: int(c.resources.limits.get(DEVICE_RESOURCE, "0")) for c in self.pod.spec.containers}
        if not any(wanted.values()):
            return ()
        deadline = asyncio.get_running_loop().time() + DEVICE_WAIT_SECONDS
        while asyncio.get_running_loop().time() < deadline and not self._stop.is_set():
            taken = self._allocations.take(self.pod.metadata.uid, wanted)
            if taken is not None:
                return taken
            # A pod that was bound while an older one still ends waits for its devices, as the kubelet lets it.
            await asyncio.sleep(0.2)
        return None

    async def _keep(self, container: Container, devices: tuple[str, ...]) -> Exit:
        """Run a container, again and again where its pod's policy says so, until it or its pod has ended."""
        restarts = 0
        while True:
            exit_ = await self._run_once(container, devices, restarts)
            policy = self.pod.spec.restart_policy
            again = policy == "Always" or (policy == "OnFailure" and exit_.code != 0)
            if self._stop.is_set() or not again:
                return exit_
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _RESTART_BACKOFF[min(restarts, len(_RESTART_BACKOFF) - 1)])
            if self._stop.is_set():
                return exit_
            restarts += 1

    async def _run_once(self, container: Container, devices: tuple[str, ...], restarts: int) -> Exit:
        env = pod_environment.variables(
            self.pod,
            container,
            address=self._address,
            hardware=self._hardware,
            devices=devices,
            folder=self._folder,
            api_server=self._plane.url,
        )
        argv = [pod_environment.expand(text, env) for text in (*container.command, *container.args)]
        cwd = Path(container.working_dir) if container.working_dir else self._folder
        message = Path(env[pod_environment.TERMINATION_VARIABLE])
        output = self._folder / f"{container.name}.log"
        record = ContainerRecord(self._hardware.root, self.pod, container.name, restarts)
        process = await ContainerProcess.start(argv, env, cwd, output, message)
        self._processes[container.name] = process
        record.began(process.pid, output)
        cgroups.show(self._hardware.root, self.pod, record.id, process.pid, self._hardware.state.booted_at)
        self._hold_devices(devices, process.pid)
        started = _now()
        self._statuses[container.name] = _status(container, restarts, {"running": {"startedAt": started}}, ready=True)
        await self._report("Running")
        exit_ = await self._watch_over(process)
        record.ended(exit_.code)
        del self._processes[container.name]
        self._hardware.release(process.pid)
        cgroups.hide(self._hardware.root, process.pid)
        terminated = {
            "exitCode": exit_.code,
            "signal": exit_.signal,
            "reason": exit_.reason,
            "message": exit_.message,
            "startedAt": started,
            "finishedAt": _now(),
        }
        self._statuses[container.name] = _status(container, restarts, {"terminated": terminated}, ready=False)
        return exit_

    async def _watch_over(self, process: ContainerProcess) -> Exit:
        done = asyncio.create_task(process.wait())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({done, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                process.terminate()
                grace = self.pod.metadata.deletion_grace_period_seconds
                await asyncio.wait({done}, timeout=30 if grace is None else grace)
            if not done.done():
                process.kill()
                await asyncio.wait({done}, timeout=KILL_WAIT_SECONDS)
            if not done.done():
                # As with a real kubelet the pod stays Terminating, and has its devices, until the kernel lets go.
                log.warning("a pod's process survives SIGKILL", pod=self.pod.metadata.name, pids=process.left())
            return await done
        finally:
            stop.cancel()
            done.cancel()

    def _hold_devices(self, devices: tuple[str, ...], pid: int) -> None:
        for index, gpu in enumerate(self._hardware.state.gpus):
            if gpu.uuid in devices:
                self._hardware.hold(index, pid)

    @property
    def _deleted(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None

    async def _until_deleted(self) -> None:
        if self._deleted:
            self._stop.set()
        await self._stop.wait()
        if not self._deleted:
            return
        with contextlib.suppress(NotFound, Conflict):
            # Nothing of it runs any more: only now may the object go, with a grace of 0.
            await self._client.delete(
                PODS,
                self.pod.metadata.name,
                self.pod.metadata.namespace,
                uid=self.pod.metadata.uid,
                grace_period_seconds=0,
            )

    async def _finish(self, phase: str, *, reason: str = "", message: str = "", code: int | None = None) -> None:
        if code is not None:
            for container in self.pod.spec.containers:
                ended = {"exitCode": code, "reason": reason, "message": message, "finishedAt": _now()}
                self._statuses[container.name] = _status(container, 0, {"terminated": ended}, ready=False)
        await self._report(phase, reason=reason, message=message)

    async def _report(self, phase: str, *, reason: str = "", message: str = "") -> None:
        ready = "True" if phase == "Running" and all(s["ready"] for s in self._statuses.values()) else "False"
        conditions = [
            {"type": name, "status": status, "lastTransitionTime": _now()}
            for name, status in (("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready))
        ]
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": conditions,
            "startTime": self._started_at,
            "hostIP": self._address,
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "containerStatuses": list(self._statuses.values()),
        }
        if reason:
            status |= {"reason": reason, "message": message}
        body = {"metadata": {"uid": self.pod.metadata.uid}, "status": status}
        with contextlib.suppress(NotFound, Conflict):
            await self._client.patch(
                PODS, self.pod.metadata.name, body, namespace=self.pod.metadata.namespace, subresource="status"
            )

    def _kill(self) -> None:
        for process in self._processes.values():
            process.kill()


def _status(container: Container, restarts: int, state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "state": state,
    }


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
