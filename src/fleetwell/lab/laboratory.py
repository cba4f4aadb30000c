"""Brings a whole lab up and down: control plane, fleetwell's objects, nodes with their agents, the controller."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from fleetwell.api.manifests import manifests
from fleetwell.api.resources import NODE_HEALTHS, POLICIES
from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.config import load
from fleetwell.kube.errors import KubeError, NotFound
from fleetwell.kube.resource import CRDS, NODES, Raw, Resource
from fleetwell.lab import freeze, processes, workloads
from fleetwell.lab.cloud import replacement_crd
from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.host import Settings, ask, settings_file
from fleetwell.lab.sessions import Ended
from fleetwell.lab.site import NAMESPACE, Site

READY_SECONDS = 120.0
CONTROLLER_TOKEN_SECONDS = 30 * 24 * 3600
FIELD_MANAGER = "fleetwell-lab"


class LabError(RuntimeError):
    """The lab did not come up, or is not in the state that was asked of it."""


class Laboratory:
    """One lab. ``tied`` ends it with this Python process, however that one ends; ``audit`` is the control plane's."""

    def __init__(
        self,
        site: Site,
        *,
        tied: bool = False,
        audit: bool = False,
        progress: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.site = site
        self.plane = ControlPlane(site.controlplane, tied=tied, audit=audit)
        self._tied = tied
        self._progress = progress

    def up(self, settings: Settings, *, controller: bool = True, agent_arguments: tuple[str, ...] = ()) -> None:
        """Start everything and wait until all nodes are in service.

        :raises LabError: a lab is up in this folder already, or a part did not come up; then nothing is left running.
        """
        if self.site.root.exists() and any(self.running().values()):
            raise LabError(f"a lab is up in {self.site.root}.\nhint: fleetwell lab down, or another --dir")
        self._clear()
        self.site.root.mkdir(parents=True, exist_ok=True)
        self.site.shared.mkdir()
        settings_file(self.site).write_bytes(msgspec.json.encode(settings))
        try:
            self.plane.start(self._progress)
            shutil.copy(self.plane.kubeconfig, self.site.kubeconfig)
            self._progress("applying fleetwell's resource types, rights and admission policies")
            asyncio.run(self._install(agent_arguments))
            self._progress("two DaemonSets are applied: the GPU device plugin, and fleetwell's agent")
            self._progress(f"{settings.nodes} virtual nodes ({settings.machine}) join; each runs both")
            self._start("host", [sys.executable, "-m", "fleetwell.lab.host", str(self.site.root)])
            if controller:
                self._progress("the controller starts")
                self.start_controller()
            asyncio.run(self._until_ready(settings.nodes, time.monotonic() + READY_SECONDS))
        except BaseException:
            # Ctrl-C too: a lab that is half up must not be left running.
            self.down(keep=True)
            raise

    def start_controller(self, *arguments: str, name: str = "controller") -> processes.LabProcess:
        """Start a controller with the rights that it has in a cluster."""
        kubeconfig = self.site.root / f"{name}.kubeconfig"
        token = asyncio.run(self._token("fleetwell-controller"))
        self.plane.kubeconfig_for(kubeconfig, "fleetwell-controller", token=token)
        argv = [sys.executable, "-m", "fleetwell", "controller", "--kubeconfig", str(kubeconfig)]
        return self._start(name, [*argv, *workloads.CONTROLLER_ARGUMENTS, *arguments])

    def down(self, *, keep: bool = False) -> None:
        """Stop everything; the folder is removed unless ``keep``."""
        stuck = [name for name in self._started() if self._stop(name) is Ended.STUCK]
        if self.site.root.exists():
            freeze.release_under(self.site.root)
        self.plane.stop()
        self.site.socket.unlink(missing_ok=True)
        if stuck:
            raise LabError(f"still there after SIGKILL: {', '.join(stuck)}; the folder {self.site.root} was kept")
        if not keep:
            self._clear()
            with contextlib.suppress(OSError):
                self.site.root.rmdir()

    def _clear(self) -> None:
        """Remove what a lab leaves, and nothing else that the folder may hold."""
        if self.site.root.exists():
            freeze.release_under(self.site.root)
        for part in self.site.parts:
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            else:
                part.unlink(missing_ok=True)

    def running(self) -> dict[str, bool]:
        """Tell of each process of the lab whether it is there."""
        found = {name: processes.attach(self._record(name)) for name in self._started()}
        mine = {name: process is not None and process.is_running() for name, process in found.items()}
        return {**self.plane.running(), **mine}

    def apply(self, *objects: Raw) -> None:
        """Apply objects as the administrator, server-side."""
        asyncio.run(self._apply(objects))

    def process(self, name: str) -> processes.LabProcess | None:
        """Give one of the lab's own processes: ``host`` or a controller."""
        return processes.attach(self._record(name))

    def _started(self) -> list[str]:
        folder = self.site.run
        return sorted((path.stem for path in folder.glob("*.json")), reverse=True) if folder.is_dir() else []

    def _record(self, name: str) -> Path:
        return self.site.run / f"{name}.json"

    def _start(self, name: str, argv: list[str]) -> processes.LabProcess:
        self.site.run.mkdir(exist_ok=True)
        return processes.start(
            name,
            argv,
            log=self.site.logs / f"{name}.log",
            # PYTHONSAFEPATH: the lab's folder must not shadow a module.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            cwd=self.site.root,
            record=self._record(name),
            tied=self._tied,
        )

    def _stop(self, name: str) -> Ended | None:
        process = processes.attach(self._record(name))
        if process is None:
            return None
        process.signal(signal.SIGCONT)
        ended = process.stop(10.0)
        if ended is not Ended.STUCK:
            self._record(name).unlink(missing_ok=True)
        return ended

    def _client(self) -> Client:
        return Client(load(self.plane.kubeconfig), user_agent="fleetwell-lab")

    async def _token(self, account: str) -> str:
        async with self._client() as client:
            return await client.create_token(account, NAMESPACE, expiration_seconds=CONTROLLER_TOKEN_SECONDS)

    async def _install(self, agent_arguments: tuple[str, ...]) -> None:
        async with self._client() as client:
            crds = [replacement_crd(), *(m for m in manifests() if m["kind"] == "CustomResourceDefinition")]
            await _apply_with(client, crds)
            for crd in crds:
                await _until_established(client, crd["metadata"]["name"])
            await _apply_with(client, [m for m in manifests() if m["kind"] != "CustomResourceDefinition"])
            await _apply_with(
                client,
                [
                    *workloads.replacement_rights(),
                    workloads.device_plugin(),
                    workloads.agent(self.site, agent_arguments),
                ],
            )

    async def _apply(self, objects: tuple[Raw, ...]) -> None:
        async with self._client() as client:
            await _apply_with(client, list(objects))

    async def _until_ready(self, nodes: int, deadline: float) -> None:
        async with self._client() as client:
            waiting = "for nodes"
            while time.monotonic() < deadline:
                for name, runs in self.running().items():
                    if not runs:
                        raise LabError(_died(self.site, self.plane, name))
                waiting = await _missing(client, nodes)
                if not waiting:
                    return
                await asyncio.sleep(0.5)
        raise LabError(
            f"the lab is not ready after {READY_SECONDS:.0f} s, still waiting {waiting}; see {self.site.logs}"
        )


def _died(site: Site, plane: ControlPlane, name: str) -> str:
    log = site.logs / f"{name}.log"
    if not log.exists():
        log = plane.log(name)
    return (
        f"{name} ended while the lab came up. Its last lines:\n{processes.tail(log, 15)}\nhint: all of it is in {log}"
    )


async def _missing(client: Client, wanted: int) -> str:
    nodes = (await client.list(NODES)).items
    if len(nodes) < wanted:
        return f"for {wanted - len(nodes)} nodes to join"
    for node in nodes:
        name = node.metadata.name
        if not any(c.type == "Ready" and c.status == "True" for c in node.status.conditions):
            return f"for {name} to be Ready"
        if node.status.allocatable.get("nvidia.com/gpu", "0") == "0":
            return f"for the device plugin of {name}"
        try:
            health = await client.get(NODE_HEALTHS, name)
        except NotFound:
            return f"for the agent of {name}"
        if not health.status.settled:
            return f"for the agent of {name} to see everything OK"
    return ""


async def _until_established(client: Client, name: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        crd = await client.get(CRDS, name)
        for condition in crd.get("status", {}).get("conditions") or []:
            if condition["type"] == "Established" and condition["status"] == "True":
                return
            if condition["type"] == "NonStructuralSchema" and condition["status"] == "True":
                raise LabError(f"the schema of {name} is refused: {condition['message']}")
        await asyncio.sleep(0.1)
    raise LabError(f"the API server did not take {name} within {seconds:.0f} s")


async def _apply_with(client: Client, objects: list[Raw]) -> None:
    for obj in objects:
        resource = _resource_of(obj)
        namespace = obj["metadata"].get("namespace") if resource.namespaced else None
        try:
            await client.patch(
                resource,
                obj["metadata"]["name"],
                obj,
                kind=PatchKind.APPLY,
                namespace=namespace,
                field_manager=FIELD_MANAGER,
                force=True,
            )
        except KubeError as error:
            raise LabError(f"{obj['kind']} {obj['metadata']['name']} was not applied: {error}") from error


_NAMESPACED = {"ServiceAccount", "Role", "RoleBinding", "DaemonSet", "Job", "Deployment", "PodDisruptionBudget", "Pod"}
_PLURALS = {"RemediationPolicy": POLICIES.plural, "ValidatingAdmissionPolicy": "validatingadmissionpolicies"}


def _resource_of(obj: Raw) -> Resource[Raw]:
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = obj["kind"]
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return Resource(group, version, plural, kind, kind in _NAMESPACED, dict)


def nodes_of(site: Site) -> list[str]:
    """The names of the lab's nodes, in the order in which they joined."""
    return list(ask(site, "nodes"))
