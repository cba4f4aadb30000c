"""A small kubelet: registers a virtual node, keeps its Lease and status, and runs the pods that are bound to it.

It speaks to the API server as ``system:node:<name>`` in group ``system:nodes``, so the Node authorizer and the
NodeRestriction admission plugin hold it to what a real kubelet may do.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import structlog

from fleetwell.kube.client import Client
from fleetwell.kube.config import load
from fleetwell.kube.errors import AlreadyExists, KubeError, NotFound
from fleetwell.kube.informer import Change, ChangeKind, Informer
from fleetwell.kube.objects import Pod
from fleetwell.kube.resource import LEASES, NODES, PODS, Raw
from fleetwell.lab import container_records
from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.devices import Allocations, read_offer
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.pod_worker import PodWorker
from fleetwell.lab.site import DEVICE_RESOURCE, NodeSite

log = structlog.get_logger(__name__)

VERSION = "v1.37.2"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 5.0
STATUS_SECONDS = 60.0
"""How often an unchanged status is written again, so that the node is not taken for dead."""
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Registration:
    """What a node says of itself when it joins."""

    name: str
    address: str
    provider_id: str
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()


class Kubelet:
    """One virtual node's kubelet: use :meth:`run` as a task; cancel it to take the node's power away."""

    def __init__(self, registration: Registration, hardware: Hardware, site: NodeSite, plane: ControlPlane) -> None:
        self._registration = registration
        self._hardware = hardware
        self._site = site
        self._plane = plane
        self._allocations = Allocations(site.checkpoint)
        self._workers: dict[str, PodWorker] = {}
        self._boot_id = ""
        self._last: Raw = {}
        self._written_at = 0.0
        self.ready_since: float | None = None

    async def run(self) -> None:
        """Be a node until cancelled."""
        self._boot_id = self._hardware.boot_id
        container_records.power_came_back(self._hardware.root)
        try:
            async with Client(load(self._site.kubeconfig), user_agent="fleetwell-lab-kubelet") as client:
                await self._register(client)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._renew(client))
                    tasks.create_task(self._keep_status(client))
                    tasks.create_task(self._follow_pods(client))
        finally:
            self.lose_power()

    def lose_power(self) -> None:
        """End every process of every pod, now."""
        for worker in list(self._workers.values()):
            worker.lose_power()
        self._workers.clear()

    async def shut_down(self, seconds: float) -> None:
        """End the pods as an orderly shutdown does: SIGTERM, a grace, and what is left is killed with the power."""
        workers = list(self._workers.values())
        for worker in workers:
            worker.terminate()
        if workers:
            await asyncio.wait([worker.task for worker in workers], timeout=seconds)

    async def _register(self, client: Client) -> None:
        name = self._registration.name
        body: Raw = {
            "metadata": {"name": name, "labels": self._registration.labels},
            "spec": {"providerID": self._registration.provider_id, "taints": list(self._registration.taints)},
        }
        while True:
            try:
                await client.create(NODES, body)
            except AlreadyExists:
                return
            except KubeError as error:
                log.warning("node not registered yet", node=name, why=str(error))
                await asyncio.sleep(1.0)
            else:
                return

    async def _renew(self, client: Client) -> None:
        name = self._registration.name
        while True:
            spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _now(micro=True)}
            try:
                await client.patch(LEASES, name, {"spec": spec}, namespace=LEASE_NAMESPACE)
            except NotFound:
                with contextlib.suppress(KubeError):
                    await client.create(LEASES, {"metadata": {"name": name}, "spec": spec}, LEASE_NAMESPACE)
            except KubeError as error:
                log.info("lease not renewed", node=name, why=str(error))
            await asyncio.sleep(RENEW_SECONDS)

    async def _keep_status(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._allocations.offered = read_offer(self._site.devices) or []
            status = self._status()
            stale = loop.time() - self._written_at > STATUS_SECONDS
            if status != self._last or stale:
                try:
                    await client.patch(
                        NODES, self._registration.name, {"status": self._stamped(status)}, subresource="status"
                    )
                    self._last, self._written_at = status, loop.time()
                    self.ready_since = self.ready_since or loop.time()
                except NotFound:
                    # Deleted under us: a kubelet that lives registers again.
                    await self._register(client)
                except KubeError as error:
                    log.info("status not written", node=self._registration.name, why=str(error))
            await asyncio.sleep(POLL_SECONDS)

    def _status(self) -> Raw:
        machine = self._hardware.machine
        efa = str(len(list((self._hardware.root / "sys/class/infiniband").glob("rdmap*"))))
        gpus = self._allocations
        common = {"cpu": "192", "memory": "2048Gi", "ephemeral-storage": "1024Gi", "pods": "110"}
        nic = {"vpc.amazonaws.com/efa": efa}
        return {
            "capacity": {**common, **nic, DEVICE_RESOURCE: str(machine.gpu.count if gpus.offered else 0)},
            "allocatable": {**common, **nic, DEVICE_RESOURCE: str(gpus.allocatable)},
            "addresses": [
                {"type": "InternalIP", "address": self._registration.address},
                {"type": "Hostname", "address": self._registration.name},
            ],
            "nodeInfo": {
                "bootID": self._boot_id,
                "machineID": self._hardware.state.dmi_uuid.replace("-", ""),
                "systemUUID": self._hardware.state.dmi_uuid,
                "kernelVersion": "6.1.0-lab",
                "osImage": "fleetwell lab",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "containerRuntimeVersion": "processes://1",
                "kubeletVersion": VERSION,
                "kubeProxyVersion": "",
            },
        }

    def _stamped(self, status: Raw) -> Raw:
        """Add the kubelet's own conditions; their transition time moves only with a boot, which is when they change."""
        now = _now()
        since = dt.datetime.fromtimestamp(self._hardware.state.booted_at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [
            _condition("MemoryPressure", "False", "KubeletHasSufficientMemory", since, now),
            _condition("DiskPressure", "False", "KubeletHasNoDiskPressure", since, now),
            _condition("PIDPressure", "False", "KubeletHasSufficientPID", since, now),
            _condition("Ready", "True", "KubeletReady", since, now),
        ]
        return {**status, "conditions": conditions}

    async def _follow_pods(self, client: Client) -> None:
        informer: Informer[Pod] = Informer(
            client, PODS, field_selector=f"spec.nodeName={self._registration.name}", watch_seconds=120.0
        )
        informer.on_change(lambda change: self._pod_changed(client, change))
        await informer.run()

    def _pod_changed(self, client: Client, change: Change[Pod]) -> None:
        pod = change.object
        worker = self._workers.get(pod.metadata.uid)
        if change.kind is ChangeKind.DELETED:
            if worker is not None:
                worker.vanished()
        elif worker is not None:
            worker.changed(pod)
        elif pod.status.phase not in {"Succeeded", "Failed"} or pod.metadata.deletion_timestamp is not None:
            folder = self._site.pods / f"{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid[:8]}"
            self._workers[pod.metadata.uid] = PodWorker(
                pod,
                client=client,
                plane=self._plane,
                hardware=self._hardware,
                allocations=self._allocations,
                folder=folder,
                address=self._registration.address,
                ended=self._forget,
            )

    def _forget(self, uid: str) -> None:
        self._workers.pop(uid, None)


def _condition(kind: str, status: str, reason: str, since: str, now: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": reason,
        "lastTransitionTime": since,
        "lastHeartbeatTime": now,
    }


def _now(*, micro: bool = False) -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
