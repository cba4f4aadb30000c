"""What the scenarios do to a cluster and see of it, in the words of the scenarios."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from fleetwell.api.incident import IncidentKind, Phase
from fleetwell.api.resources import (
    INCIDENTS,
    NODE_HEALTHS,
    NODE_OPERATIONS,
    POLICIES,
    Incident,
    NodeHealth,
    NodeOperation,
)
from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.config import load
from fleetwell.kube.errors import NotFound
from fleetwell.kube.objects import Node, NodeCondition, Pod
from fleetwell.kube.resource import NODES, PODS, Raw
from fleetwell.lab import faults, workloads
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.host import ask
from fleetwell.lab.laboratory import Laboratory
from fleetwell.lab.nvml_state import RecoveryAction

T = TypeVar("T")
QUARANTINE = "fleetwell.io/quarantine"


class Field:
    """One lab, seen by its administrator."""

    def __init__(self, laboratory: Laboratory) -> None:
        self.lab = laboratory
        self.client = Client(load(laboratory.plane.kubeconfig), user_agent="scenario")

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.__aexit__(kind, error, trace)

    async def apply(self, *objects: Raw) -> None:
        await asyncio.to_thread(self.lab.apply, *objects)

    async def policy(self, **changes: Any) -> None:
        """Apply the lab's policy with some parts of its spec changed."""
        policy = workloads.policy()
        policy["spec"] |= changes
        await self.apply(policy)

    async def no_policy(self) -> None:
        for policy in (await self.client.list(POLICIES)).items:
            await self.client.delete(POLICIES, policy.metadata.name)

    async def start_controller(self, *arguments: str) -> None:
        await asyncio.to_thread(self.lab.start_controller, *arguments)

    async def kill_controller(self) -> None:
        """End the controller as a power cut does: nothing is said, and the lease stays held until it runs out."""
        process = self.lab.process("controller")
        if process is not None and process.signal(signal.SIGKILL):
            await asyncio.to_thread(process.wait, 5.0)

    @asynccontextmanager
    async def watching(self, node: str, seconds: float = 110.0) -> AsyncIterator[list[Node]]:
        """Collect every version of a Node that the API server shows while the block lasts."""
        seen: list[Node] = []
        only = {"fieldSelector": f"metadata.name={node}"}
        start = (await self.client.list(NODES, field_selector=only["fieldSelector"])).resource_version

        async def follow() -> None:
            watch = self.client.watch(NODES, resource_version=start, params=only, seconds=seconds, grace=5.0)
            async with watch as frames:
                async for frame in frames:
                    if frame.type != "BOOKMARK":
                        seen.append(msgspec.json.decode(frame.object, type=Node))  # noqa: PERF401 (live, not at the end)
            raise AssertionError(f"the API server ended the watch of {node}: what came after was not seen")

        task = asyncio.create_task(follow(), name=f"watching {node}")
        try:
            yield seen
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def hardware(self, node: str) -> Hardware:
        return Hardware(self.lab.site.node(node).host)

    async def inject(self, fault: str, node: str, gpu: int | None = None, **parameters: Any) -> None:
        await asyncio.to_thread(faults.inject, self.hardware(node), fault, gpu, **parameters)

    async def driver_asks(self, node: str, action: RecoveryAction, gpu: int = 0) -> None:
        """Let NVML advise a recovery of a GPU and nothing say so in the kernel log: a fault that can go again."""

        def set_action() -> None:
            with self.hardware(node).update() as state:
                Hardware.gpu(state, gpu).volatile.recovery_action = action

        await asyncio.to_thread(set_action)

    async def ask(self, command: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(ask, self.lab.site, command, **arguments)

    async def node(self, name: str) -> Node:
        return await self.client.get(NODES, name)

    async def health(self, name: str) -> NodeHealth:
        return await self.client.get(NODE_HEALTHS, name)

    async def condition(self, node: str, kind: str) -> NodeCondition | None:
        found = [c for c in (await self.node(node)).status.conditions if c.type == f"fleetwell.io/{kind}"]
        return found[0] if found else None

    async def quarantined(self, node: str) -> bool:
        return any(taint.key == QUARANTINE for taint in (await self.node(node)).spec.taints)

    async def incidents(self, node: str | None = None) -> list[Incident]:
        """Repair incidents, the oldest first."""
        found = [i for i in (await self.client.list(INCIDENTS)).items if i.spec.kind is IncidentKind.REPAIR]
        mine = [i for i in found if node is None or i.spec.node_name == node]
        return sorted(mine, key=lambda incident: incident.metadata.creation_timestamp or "")

    async def incident(self, node: str) -> Incident | None:
        """The latest repair incident of a node."""
        found = await self.incidents(node)
        return found[-1] if found else None

    async def operations(self, node: str) -> list[NodeOperation]:
        return [op for op in (await self.client.list(NODE_OPERATIONS)).items if op.spec.node_name == node]

    async def phase(self, node: str) -> Phase | None:
        incident = await self.incident(node)
        return incident.status.phase if incident is not None and incident.status is not None else None

    async def pods(self, namespace: str = "default", selector: str = "") -> list[Pod]:
        return list((await self.client.list(PODS, namespace, label_selector=selector)).items)

    async def run_pod(self, name: str, *, node: str | None = None, gpus: int = 0, script: str = "sleep 3600",
                      grace: int = 5, labels: dict[str, str] | None = None, **spec: Any) -> None:  # fmt: skip
        """Create a bare pod that runs a shell script; with ``node`` it goes there by node selector."""
        container: Raw = {"name": "main", "image": "lab", "command": ["/bin/sh", "-c", script]}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        body: Raw = {
            "metadata": {"name": name, "labels": labels or {"app": name}},
            "spec": {
                "containers": [container],
                "terminationGracePeriodSeconds": grace,
                "restartPolicy": "Never",
                **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
                **spec,
            },
        }
        await self.client.create(PODS, body, "default")

    async def running(self, pod: str) -> bool:
        try:
            return (await self.client.get(PODS, pod, "default")).status.phase == "Running"
        except NotFound:
            return False

    async def command(self, incident: Incident, **commands: Any) -> None:
        """Write a person's word into an incident's spec."""
        await self.client.patch(INCIDENTS, incident.metadata.name, {"spec": commands}, kind=PatchKind.MERGE)

    async def until(self, what: str, look: Callable[[], Awaitable[T]], seconds: float = 30.0) -> T:
        """Look again and again until the answer is true, and give it; fail with what was waited for."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            answer = await look()
            if answer:
                return answer
            if asyncio.get_running_loop().time() > deadline:
                story = await self.story()
                raise AssertionError(f"not within {seconds:.0f} s: {what}\n{story}")
            await asyncio.sleep(0.1)

    async def story(self) -> str:
        """Everything the controller decided, for a failed test's message."""
        lines = []
        for incident in (await self.client.list(INCIDENTS)).items:
            lines.append(f"{incident.metadata.name} ({incident.spec.kind} of {incident.spec.node_name})")
            if incident.status is not None:
                lines.append(f"  {incident.status.phase}: {incident.status.summary}")
                lines += [f"    {said.at:%H:%M:%S} {said.text}" for said in incident.status.decisions]
        return "\n".join(lines)
