"""Wires an agent together: one process, one loop, every part of it a task that ends with the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

import structlog

from fleetwell.agent.allocatable import Allocatable
from fleetwell.agent.assessment import Assessment
from fleetwell.agent.boot import read_boot
from fleetwell.agent.deeds import NodeDeeds
from fleetwell.agent.doorbell import Doorbell, answer
from fleetwell.agent.endpoints import Endpoints
from fleetwell.agent.kernel_events import KernelEvents
from fleetwell.agent.maintenance import maintenance_source
from fleetwell.agent.operations import Identity, Operations
from fleetwell.agent.own_objects import INSTANCE_TYPE, AnotherNodeError, first_read, policys_word, remedy_done
from fleetwell.agent.publish import Publisher, published_conditions
from fleetwell.agent.record import OperationRecord
from fleetwell.agent.settings import Settings
from fleetwell.agent.watch import Watch
from fleetwell.api.resources import NODE_HEALTHS, NodeHealth, NodeOperation
from fleetwell.health.vocabulary import Source
from fleetwell.kube.client import Client
from fleetwell.kube.heartbeat import HeartbeatLease
from fleetwell.kube.informer import Change, ChangeKind, Informer
from fleetwell.kube.objects import Node, OwnerReference
from fleetwell.kube.resource import NODES
from fleetwell.probes.inventory import MemoryFile, requested

log = structlog.get_logger(__name__)

TICK = 5.0
"""Seconds between two looks at the clock: for findings that age out, and for the kernel log's own report."""
FIRST_TICK = 0.2
"""The same until the kernel log has been read for the first time."""


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
        self._watch = Watch(settings, self._assessment)
        self._maintenance = maintenance_source(settings, self._assessment)
        self._allocatable = Allocatable(self._assessment)
        self._kernel = KernelEvents(
            settings.host_root / "dev/kmsg",
            settings.state_dir / "kernel_log.json",
            self._assessment,
            on_finding=self._watch.look_now,
        )
        self._doorbell = Doorbell()
        self._publisher: Publisher | None = None
        self._beats: HeartbeatLease | None = None
        self._named = 0

    async def run(self) -> None:
        """Run until cancelled.

        :raises AnotherNodeError: the Node was made anew under the same name.
        """
        node, health = await first_read(self._client, self._settings.node_name)
        self._adopt(node, health)
        deeds = NodeDeeds(self._settings, lambda: self._assessment.expected, self._watch.paused)
        operations = self._operations(node, deeds)
        nodes = Informer(self._client, NODES, name=node.metadata.name)
        healths = Informer(self._client, NODE_HEALTHS, name=node.metadata.name)
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        nodes.on_change(lambda change: self._node_changed(change, node.metadata.uid, stop))
        healths.on_change(self._health_changed)
        publisher = self._publisher
        assert publisher is not None  # noqa: S101 (made by _adopt)
        endpoints = Endpoints(
            self._settings,
            self._client,
            self._assessment,
            self._watch,
            self._kernel,
            publisher,
            lambda: self._beats.last_beat if self._beats is not None else None,
        )
        log.info("agent begins", node=node.metadata.name, boot=self._assessment.boot.boot_id)
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (
                    *(source.run() for source in self._watch.all),
                    *((self._maintenance.run(),) if self._maintenance is not None else ()),
                    publisher.run(),
                    nodes.run(),
                    healths.run(),
                    answer(self._doorbell, operations, asyncio.sleep),
                    self._heartbeat(node),
                    self._keep_time(),
                    *endpoints.serving(),
                    _until(stop),
                ):
                    tasks.create_task(part)
                self._kernel.tail.start()
        finally:
            await self._kernel.close()
            deeds.close()

    def _adopt(self, node: Node, health: NodeHealth | None) -> None:
        assessment = self._assessment
        assessment.node_uid = node.metadata.uid
        assessment.provider_id = node.spec.provider_id
        assessment.instance_type = node.metadata.labels.get(INSTANCE_TYPE) or assessment.instance_type
        self._take_from(node)
        publisher = Publisher(
            self._client, node, assessment.conditions, assessment.status, looked=self._every_probe_looked
        )
        until = self._kernel.judged_until()
        if health is not None:
            published = health.status
            assessment.policy_says(policys_word(health))
            if not until and published.boot_id == assessment.boot.boot_id:
                events = (one.last_seen.timestamp() for one in published.findings if one.source is Source.EVENT)
                until = max(events, default=0.0)
            publisher.adopt(published)
            assessment.adopt(published, published_conditions(node), until)
        self._kernel.name_devices()
        self._watch.operands.node_changed(node.metadata.labels)
        self._publisher = publisher
        publisher.wake()

    def _operations(self, node: Node, deeds: NodeDeeds) -> Operations:
        identity = Identity(
            node_name=node.metadata.name, node_uid=node.metadata.uid, boot_id=self._assessment.boot.boot_id
        )
        record = OperationRecord(self._settings.state_dir / "operations.jsonl")
        return Operations(self._client, record, identity, deeds, ended=self._operation_ended)

    async def _heartbeat(self, node: Node) -> None:
        await self._watch.first_looks()
        owner = OwnerReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)
        self._beats = HeartbeatLease(
            self._client,
            name=node.metadata.name,
            namespace=self._settings.namespace,
            identity=f"{node.metadata.name}/{self._assessment.boot.boot_id}",
            period=self._settings.heartbeat,
            owner=owner,
            alive=self._watch.alive,
        )
        await self._beats.run()

    async def _keep_time(self) -> None:
        settled = False
        while True:
            self._kernel.report()
            self._allocatable.look(time.monotonic())
            self._watch.operands.look()
            self._assessment.tick()
            await asyncio.sleep(TICK if settled else FIRST_TICK)
            settled = self._kernel.tail.caught_up.is_set()

    def _every_probe_looked(self) -> bool:
        kernel = self._kernel.tail
        return self._watch.looked() and (kernel.caught_up.is_set() or bool(kernel.failure))

    def _something_changed(self) -> None:
        memory = self._assessment.memory if self._publisher is not None else None
        named = 0 if memory is None else len(memory.gpus) + memory.most_nics + memory.most_infiniband
        if memory is not None and named != self._named:
            self._named = named
            self._kernel.name_devices()
            self._memory_file.write(memory)
        if self._publisher is not None:
            self._publisher.wake()

    def _node_changed(self, change: Change[Node], uid: str, stop: asyncio.Future[None]) -> None:
        if change.object.metadata.uid != uid or change.kind is ChangeKind.DELETED:
            if not stop.done():
                stop.set_exception(AnotherNodeError(f"the Node {change.object.metadata.name} is not {uid} any more"))
            return
        self._take_from(change.object)
        self._watch.operands.node_changed(change.object.metadata.labels)
        if self._publisher is not None:
            self._publisher.node_changed(change.object)

    def _take_from(self, node: Node) -> None:
        """Take from the Node what it says of its launch, and what it offers."""
        self._assessment.requested = requested(node.metadata.labels, node.metadata.annotations)
        self._assessment.expect_anew()
        self._allocatable.node_changed(node)

    def _health_changed(self, change: Change[NodeHealth]) -> None:
        if change.kind is ChangeKind.DELETED:
            if self._publisher is not None:
                self._publisher.health_gone()
            return
        self._assessment.policy_says(policys_word(change.object))
        self._doorbell.ring(change.object.spec.operation)

    def _operation_ended(self, operation: NodeOperation) -> None:
        """Tell triage what was done: findings that end by a remedy wait for it."""
        done = remedy_done(operation)
        if done is not None:
            self._assessment.take(done)
            self._watch.look_now()


async def _until(stop: Awaitable[None]) -> None:
    await stop
