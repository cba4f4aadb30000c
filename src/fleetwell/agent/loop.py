"""Wires an agent together: one process, one loop, every part of it a task that ends with the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

import structlog

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import read_boot
from fleetwell.agent.deeds import NodeDeeds
from fleetwell.agent.doorbell import Doorbell, answer
from fleetwell.agent.kernel_events import KernelEvents
from fleetwell.agent.operations import Identity, Operations
from fleetwell.agent.publish import Publisher, published_conditions
from fleetwell.agent.record import OperationRecord
from fleetwell.agent.settings import Settings
from fleetwell.agent.sources import ChildSource
from fleetwell.api.node_health import NodeHealthStatus
from fleetwell.api.node_operation import OperationKind, OperationPhase
from fleetwell.api.resources import NODE_HEALTHS, NodeHealth, NodeOperation
from fleetwell.health.stimuli import RemedyDone
from fleetwell.health.vocabulary import HOST, Component, Recovery, Source
from fleetwell.kube.backoff import Backoff
from fleetwell.kube.client import Client
from fleetwell.kube.errors import KubeError, NotFound
from fleetwell.kube.heartbeat import HeartbeatLease
from fleetwell.kube.informer import Change, ChangeKind, Informer
from fleetwell.kube.objects import Node, OwnerReference
from fleetwell.kube.resource import NODES
from fleetwell.probes.inventory import MemoryFile

log = structlog.get_logger(__name__)

TICK = 5.0
"""Seconds between two looks at the clock: for findings that age out, and for the kernel log's own report."""
FIRST_TICK = 0.2
"""The same until the kernel log has been read for the first time."""
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


class AnotherNodeError(RuntimeError):
    """The Node object under this name is not the one that this agent began with: it has to begin anew."""


class Agent:
    """One node's agent.

    :param settings: what it was told.
    :param client: the API server, with the node's own token.
    """

    def __init__(self, settings: Settings, client: Client) -> None:
        self._settings = settings
        self._client = client
        self._memory_file = MemoryFile(settings.state_dir / "machine.json")
        boot = read_boot(settings.host_root, settings.node_name)
        self._assessment = Assessment(
            boot, self._memory_file.read(boot.serial), settings.expect, on_change=self._something_changed
        )
        self._sources = (
            ChildSource("nvml", ("nvml",), settings.nvml, self._asked, self._assessment),
            ChildSource("sysfs", ("pci", "efa"), settings.sysfs, self._asked, self._assessment),
        )
        self._kernel = KernelEvents(
            settings.host_root / "dev/kmsg",
            settings.state_dir / "kernel_log.json",
            self._assessment,
            on_finding=self._look_now,
        )
        self._doorbell = Doorbell()
        self._publisher: Publisher | None = None
        self._named = 0

    async def run(self) -> None:
        """Run until cancelled.

        :raises AnotherNodeError: the Node was made anew under the same name.
        """
        node, published = await self._first_read()
        self._adopt(node, published)
        deeds = NodeDeeds(self._settings, lambda: self._assessment.expected, self._pause_probes)
        operations = self._operations(node, deeds)
        nodes = Informer(self._client, NODES, name=node.metadata.name)
        healths = Informer(self._client, NODE_HEALTHS, name=node.metadata.name)
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        nodes.on_change(lambda change: self._node_changed(change, node.metadata.uid, stop))
        healths.on_change(self._health_changed)
        publisher = self._publisher
        assert publisher is not None  # noqa: S101 (made by _adopt)
        log.info("agent begins", node=node.metadata.name, boot=self._assessment.boot.boot_id)
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (
                    *(source.run() for source in self._sources),
                    publisher.run(),
                    nodes.run(),
                    healths.run(),
                    answer(self._doorbell, operations, asyncio.sleep),
                    self._heartbeat(node),
                    self._keep_time(),
                    _until(stop),
                ):
                    tasks.create_task(part)
                self._kernel.tail.start()
        finally:
            self._kernel.tail.close()
            deeds.close()

    async def _first_read(self) -> tuple[Node, NodeHealthStatus | None]:
        """Read the own Node and NodeHealth, however long it takes: nothing is published before they are known."""
        backoff = Backoff(0.5, 15.0)
        while True:
            try:
                node = await self._client.get(NODES, self._settings.node_name)
                with contextlib.suppress(NotFound):
                    health: NodeHealth = await self._client.get(NODE_HEALTHS, self._settings.node_name)
                    return node, health.status
            except KubeError as error:
                pause = backoff.after_failure()
                log.warning("own node not read yet", why=str(error), retry_in=round(pause, 1))
                await asyncio.sleep(pause)
            else:
                return node, None

    def _adopt(self, node: Node, published: NodeHealthStatus | None) -> None:
        assessment = self._assessment
        assessment.node_uid = node.metadata.uid
        assessment.provider_id = node.spec.provider_id
        assessment.instance_type = node.metadata.labels.get(INSTANCE_TYPE) or assessment.instance_type
        assessment.expect_anew()
        publisher = Publisher(
            self._client, node, assessment.conditions, assessment.status, looked=self._every_probe_looked
        )
        until = self._kernel.judged_until()
        if published is not None:
            if not until and published.boot_id == assessment.boot.boot_id:
                events = (one.last_seen.timestamp() for one in published.findings if one.source is Source.EVENT)
                until = max(events, default=0.0)
            publisher.adopt(published)
            assessment.adopt(published, published_conditions(node), until)
        self._kernel.name_devices()
        self._publisher = publisher
        publisher.wake()

    def _operations(self, node: Node, deeds: NodeDeeds) -> Operations:
        identity = Identity(
            node_name=node.metadata.name, node_uid=node.metadata.uid, boot_id=self._assessment.boot.boot_id
        )
        record = OperationRecord(self._settings.state_dir / "operations.jsonl")
        return Operations(self._client, record, identity, deeds, ended=self._operation_ended)

    async def _heartbeat(self, node: Node) -> None:
        for source in self._sources:
            await source.first_look.wait()
        owner = OwnerReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)
        await HeartbeatLease(
            self._client,
            name=node.metadata.name,
            namespace=self._settings.namespace,
            identity=f"{node.metadata.name}/{self._assessment.boot.boot_id}",
            period=self._settings.heartbeat,
            owner=owner,
            alive=self.alive,
        ).run()

    def alive(self) -> bool:
        """Tell whether every probe's looks are resolved in time: an agent that only turns its loop is not alive."""
        now = time.monotonic()
        times = self._settings.silent_after
        return all(
            source.last_resolved is not None and now - source.last_resolved <= times * source.patience
            for source in self._sources
        )

    async def _keep_time(self) -> None:
        settled = False
        while True:
            self._kernel.report()
            self._assessment.tick()
            await asyncio.sleep(TICK if settled else FIRST_TICK)
            settled = self._kernel.tail.caught_up.is_set()

    def _every_probe_looked(self) -> bool:
        kernel = self._kernel.tail
        looked = all(source.first_look.is_set() for source in self._sources)
        return looked and (kernel.caught_up.is_set() or bool(kernel.failure))

    def _asked(self) -> dict[str, object]:
        must, memory = self._assessment.expected, self._assessment.memory
        return {
            "host_root": str(self._settings.host_root),
            "expected": must.gpus,
            "expected_nics": must.nics,
            "known": memory.gpus,
            "known_nics": memory.nics,
        }

    def _something_changed(self) -> None:
        memory = self._assessment.memory if self._publisher is not None else None
        if memory is not None and len(memory.gpus) + memory.most_nics != self._named:
            self._named = len(memory.gpus) + memory.most_nics
            self._kernel.name_devices()
            self._memory_file.write(memory)
        if self._publisher is not None:
            self._publisher.wake()

    def _look_now(self) -> None:
        for source in self._sources:
            source.trigger()

    @contextmanager
    def _pause_probes(self) -> Iterator[None]:
        with self._sources[0].paused():  # Only NVML touches the GPUs.
            yield

    def _node_changed(self, change: Change[Node], uid: str, stop: asyncio.Future[None]) -> None:
        if change.object.metadata.uid != uid or change.kind is ChangeKind.DELETED:
            if not stop.done():
                stop.set_exception(AnotherNodeError(f"the Node {change.object.metadata.name} is not {uid} any more"))
            return
        if self._publisher is not None:
            self._publisher.node_changed(change.object)

    def _health_changed(self, change: Change[NodeHealth]) -> None:
        if change.kind is ChangeKind.DELETED:
            if self._publisher is not None:
                self._publisher.health_gone()
            return
        self._doorbell.ring(change.object.spec.operation)

    def _operation_ended(self, operation: NodeOperation) -> None:
        """Tell triage what was done: findings that end by a remedy wait for it."""
        if operation.status.phase is not OperationPhase.SUCCEEDED:
            return
        spec = operation.spec
        match spec.kind:
            case OperationKind.PROVE:
                done = RemedyDone(recovery=Recovery.NONE, component=HOST, proof_passed=True)
            case OperationKind.RESET_GPU:
                component = Component(spec.component)
                done = RemedyDone(recovery=Recovery.RESET_GPU, component=component, proof_passed=False)
            case OperationKind.REBOOT:
                done = RemedyDone(recovery=Recovery.REBOOT, component=HOST, proof_passed=False)
            case _:
                return  # Collecting logs changes nothing.
        self._assessment.take(done)
        self._look_now()


async def _until(stop: Awaitable[None]) -> None:
    await stop
