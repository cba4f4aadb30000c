"""The lab's cloud: it owns the machines, restarts them when asked, and gives a new one for a broken one.

It is attached to fleetwell as any janitor or cloud operator would be: the ``template`` provider makes an object of the
kind ``MachineReplacement``, and this watches that kind. A new machine joins with the taint of an unproven node.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import structlog

from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.errors import Conflict, KubeError, NotFound
from fleetwell.kube.informer import Change, ChangeKind, Informer
from fleetwell.kube.resource import NODES, Raw, Resource
from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.machine import Machine
from fleetwell.lab.site import Site
from fleetwell.lab.virtual_node import Plan, VirtualNode

log = structlog.get_logger(__name__)

REPLACEMENTS: Resource[Raw] = Resource(
    "lab.fleetwell.io", "v1", "machinereplacements", "MachineReplacement", False, dict, status=True
)


def replacement_crd() -> Raw:
    """Give the CRD of MachineReplacement: the template provider's fixed fields, and a phase."""
    text = {"type": "string"}
    spec = dict.fromkeys(("nodeName", "nodeUID", "providerID", "incident", "bootID", "reason"), text)
    status = {"phase": text, "message": text, "newNode": text}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec, "required": ["nodeName", "nodeUID"]},
            "status": {"type": "object", "properties": status},
        },
    }
    columns = [
        {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "New", "type": "string", "jsonPath": ".status.newNode"},
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{REPLACEMENTS.plural}.{REPLACEMENTS.group}"},
        "spec": {
            "group": REPLACEMENTS.group,
            "scope": "Cluster",
            "names": {"plural": REPLACEMENTS.plural, "singular": "machinereplacement", "kind": REPLACEMENTS.kind},
            "versions": [
                {
                    "name": REPLACEMENTS.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


class Cloud:
    """All machines of one lab."""

    def __init__(
        self,
        site: Site,
        plane: ControlPlane,
        client: Client,
        machine: Machine,
        *,
        library: Path,
        boot_seconds: float,
        provision_seconds: float,
    ) -> None:
        self._site = site
        self._plane = plane
        self._client = client
        self._machine = machine
        self._library = library
        self._boot_seconds = boot_seconds
        self._provision_seconds = provision_seconds
        self.nodes: dict[str, VirtualNode] = {}
        self._numbered = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, *, unproven: bool = False) -> VirtualNode:
        """Put a new machine into service; it joins the cluster by itself."""
        self._numbered = max(self._numbered, *(_number(name) for name in ("gpu-0", *self._site.node_names()))) + 1
        return self._start(Plan(f"gpu-{self._numbered}", self._numbered, self._machine, unproven=unproven))

    def resume(self) -> None:
        """Switch on again the machines whose folders are there."""
        for name in self._site.node_names():
            if self._site.node(name).host.exists():
                self._start(Plan(name, _number(name), self._machine))

    def _start(self, plan: Plan) -> VirtualNode:
        node = VirtualNode(
            plan, self._site.node(plan.name), self._plane, boot_seconds=self._boot_seconds, library=self._library
        )
        self.nodes[plan.name] = node
        node.power_on()
        return node

    async def run(self) -> None:
        """Carry out replacements until cancelled, then take the power from all nodes."""
        informer = Informer(self._client, REPLACEMENTS)
        informer.on_change(self._ordered)
        try:
            await informer.run()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*(node.power_off() for node in self.nodes.values()))

    def _ordered(self, change: Change[Raw]) -> None:
        done = change.object.get("status", {}).get("phase")
        if change.kind is ChangeKind.ADDED and done not in {"Succeeded", "Failed"}:
            task = asyncio.create_task(self._replace(change.object))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _replace(self, order: Raw) -> None:
        name, spec = order["metadata"]["name"], order["spec"]
        old = self.nodes.get(spec["nodeName"])
        if old is None or (spec.get("providerID") and spec["providerID"] != old.provider_id):
            await self._answer(name, "Failed", f"there is no machine {spec.get('providerID') or spec['nodeName']}")
            return
        await self._answer(name, "Running", f"taking {old.name} away")
        try:
            await old.scrap()
            del self.nodes[old.name]
            with contextlib.suppress(NotFound, Conflict):
                await self._client.delete(NODES, old.name, uid=spec["nodeUID"])
            await asyncio.sleep(self._provision_seconds)
            new = self.add(unproven=True)
        except (KubeError, OSError) as error:
            await self._answer(name, "Failed", str(error))
            return
        await self._answer(name, "Succeeded", f"{new.name} takes its place", new.name)

    async def _answer(self, name: str, phase: str, message: str, new: str = "") -> None:
        log.info("replacement", order=name, phase=phase, message=message)
        status = {"phase": phase, "message": message, "newNode": new}
        await self._client.patch(REPLACEMENTS, name, {"status": status}, kind=PatchKind.MERGE, subresource="status")


def _number(name: str) -> int:
    return int(name.removeprefix("gpu-"))
