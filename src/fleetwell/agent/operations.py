"""Carries out what the controller asks of this node, each thing at most once.

The order is the whole point: live read → checks → Running at the API server (with the resourceVersion that was read) →
on this node's disk, flushed → act → result on disk → result at the API server. Whatever the agent finds when it comes
back in the middle of that, it never acts a second time; what it cannot know it reports as ``Uncertain``, which counts
as an attempt. Prove and CollectLogs do no harm when they are repeated, so they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
import structlog

from fleetwell.agent.record import Began, Entry, OperationRecord
from fleetwell.api.node_operation import (
    NodeOperationSpec,
    NodeOperationStatus,
    OperationKind,
    OperationPhase,
)
from fleetwell.api.resources import NODE_OPERATIONS, NodeOperation
from fleetwell.kube.backoff import Backoff
from fleetwell.kube.errors import Conflict, KubeError, NotFound

log = structlog.get_logger(__name__)

REPEATABLE = {OperationKind.PROVE, OperationKind.COLLECT_LOGS}


class Api(Protocol):
    """What is needed of :class:`fleetwell.kube.client.Client`."""

    async def get(self, resource: Any, name: str) -> Any:
        """Read one object, live."""

    async def replace(self, resource: Any, obj: Any, *, subresource: str) -> Any:
        """Write a status whole; Conflict when the object has changed since it was read."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which node, and which boot of it, this agent speaks for."""

    node_name: str
    node_uid: str
    boot_id: str


class Deeds(Protocol):
    """What can be done to a node (:mod:`fleetwell.agent.deeds`)."""

    async def do(self, spec: NodeOperationSpec, within: float) -> NodeOperationStatus:
        """Carry it out within so many seconds, and say how it ended."""


class Operations:
    """Carries out one operation at a time.

    :param wall: the time, for deadlines that the controller set.
    :param sleep: waits so many seconds.
    :param ended: is told of each operation that ended here, once its result is reported.
    """

    def __init__(
        self,
        api: Api,
        record: OperationRecord,
        identity: Identity,
        deeds: Deeds,
        *,
        wall: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        ended: Callable[[NodeOperation], None] = lambda _operation: None,
    ) -> None:
        self.running: OperationKind | None = None
        """What is being carried out now."""
        self._api = api
        self._record = record
        self._identity = identity
        self._deeds = deeds
        self._wall = wall
        self._sleep = sleep
        self._ended = ended
        self._settled: set[str] = set()
        self._claims: dict[str, dt.datetime] = {}

    async def handle(self, name: str) -> None:
        """Bring the named operation to its end, retrying until the API server has the result.

        :raises KubeError: it could not be read; nothing was begun. Ring again.
        """
        if name in self._settled:
            return
        try:
            operation: NodeOperation = await self._api.get(NODE_OPERATIONS, name)
        except NotFound:
            log.info("the operation that was rung for is gone", operation=name)
            return
        here, spec = self._identity, operation.spec
        if (spec.node_name, spec.node_uid) != (here.node_name, here.node_uid):
            # A Node that was made anew under the old name inherits the bell of the old one. What it names is not ours
            # to report on, and the API server would refuse the report for as long as it is tried.
            log.warning("left alone: it is for another node", operation=name, node=spec.node_name, uid=spec.node_uid)
            self._settled.add(name)
            return
        if not operation.status.phase.ended:
            log.info("operation", operation=name, kind=operation.spec.kind, phase=operation.status.phase)
            operation = await self._bring_to_end(operation)
        self._settled.add(name)
        self._ended(operation)

    async def _bring_to_end(self, operation: NodeOperation) -> NodeOperation:
        spec = operation.spec
        entry = self._record.get(spec.operation_id)
        if entry is not None and entry.result is not None:
            return await self._report(operation, entry.result)
        is_running = operation.status.phase is OperationPhase.RUNNING
        if entry is None and is_running and operation.status.started_at == self._claims.get(spec.operation_id):
            # Our own claim, whose answer was lost on the way: nobody else writes this moment into the status.
            return await self._carry_out(operation)
        if (entry is not None or is_running) and spec.kind not in REPEATABLE:
            return await self._report(operation, await self._told_by(entry, spec))
        return await self._from_the_start(operation)

    async def _from_the_start(self, operation: NodeOperation) -> NodeOperation:
        refusal = self._refusal(operation.spec)
        if refusal is not None:
            if operation.status.phase is OperationPhase.RUNNING:
                said = f"it was carried out when the agent ended, and is not repeated: {refusal.message}"
                refusal = self._status(OperationPhase.UNCERTAIN, said)
            return await self._report(operation, refusal)
        moment = self._wall()
        self._claims[operation.spec.operation_id] = moment
        running = msgspec.structs.replace(
            self._status(OperationPhase.RUNNING, "begun"), finished_at=None, started_at=moment
        )
        try:
            claimed = await self._write(operation, running)
        except Conflict:
            # Somebody wrote it meanwhile: a cancel, or another agent. Look again from the beginning.
            now = await self._read(operation)
            return now if now.status.phase.ended else await self._bring_to_end(now)
        return await self._carry_out(claimed)

    async def _carry_out(self, operation: NodeOperation) -> NodeOperation:
        """Record it, act, and report: the API server has it as Running, written by this agent."""
        spec = operation.spec
        began = Began(
            operation_id=spec.operation_id,
            name=operation.metadata.name,
            kind=spec.kind,
            boot_id=self._identity.boot_id,
            at=self._wall().timestamp(),
        )
        try:
            self._record.begin(began)
        except OSError as error:
            said = f"it was not begun: it cannot be recorded on this node's disk first ({error.strerror or error})"
            return await self._report(operation, self._status(OperationPhase.REFUSED, said))
        return await self._report(operation, await self._act(spec))

    def _refusal(self, spec: NodeOperationSpec) -> NodeOperationStatus | None:
        """Say why it must not be begun here and now."""
        here = self._identity
        why = ""
        if spec.cancel:
            return self._status(OperationPhase.CANCELLED, "it was cancelled before it was begun")
        if spec.expected_boot_id != here.boot_id:
            why = f"it is for boot {spec.expected_boot_id}, this is boot {here.boot_id}"
        elif self._wall() >= spec.deadline:
            why = f"its deadline {spec.deadline.isoformat()} has passed"
        return self._status(OperationPhase.REFUSED, f"it was not begun: {why}") if why else None

    async def _act(self, spec: NodeOperationSpec) -> NodeOperationStatus:
        started = self._wall()
        within = (spec.deadline - started).total_seconds()
        self.running = spec.kind
        try:
            async with asyncio.timeout(within):
                status = await self._deeds.do(spec, within)
        except TimeoutError:
            status = self._status(OperationPhase.FAILED, "it had not ended at its deadline")
        finally:
            self.running = None
        status = msgspec.structs.replace(
            status, started_at=started, finished_at=self._wall(), boot_id=self._identity.boot_id
        )
        self._record.end(spec.operation_id, status)
        return status

    async def _told_by(self, entry: Entry | None, spec: NodeOperationSpec) -> NodeOperationStatus:
        """Say how an operation ended that was begun earlier, has no result, and is not to be begun again."""
        if entry is None:
            return self._status(OperationPhase.UNCERTAIN, "it was begun, and this node's disk has no record of it")
        if spec.kind is not OperationKind.REBOOT:
            return self._status(OperationPhase.UNCERTAIN, "the agent ended while it was carried out")
        if entry.began.boot_id == self._identity.boot_id:
            await self._sleep(max(0.0, (spec.deadline - self._wall()).total_seconds()))
            status = self._status(OperationPhase.FAILED, "the machine had not restarted by the deadline")
        else:
            said = f"the machine restarted: boot {entry.began.boot_id} before, {self._identity.boot_id} now"
            status = self._status(OperationPhase.SUCCEEDED, said)
        self._record.end(spec.operation_id, status)
        return status

    async def _report(self, operation: NodeOperation, status: NodeOperationStatus) -> NodeOperation:
        """Write the result, however long it takes: it is on disk, so a restart goes on here."""
        backoff = Backoff(0.5, 30.0)
        while not operation.status.phase.ended:
            try:
                operation = await self._write(operation, status)
            except NotFound:
                break
            except KubeError as error:
                pause = backoff.after_failure()
                log.warning("result not written", operation=operation.metadata.name, why=str(error), retry_in=pause)
                await self._sleep(pause)
                with contextlib.suppress(KubeError):
                    operation = await self._read(operation)
        log.info("operation ended", operation=operation.metadata.name, phase=status.phase, message=status.message)
        return operation

    def _status(self, phase: OperationPhase, message: str) -> NodeOperationStatus:
        return NodeOperationStatus(
            phase=phase, message=message, finished_at=self._wall(), boot_id=self._identity.boot_id
        )

    async def _read(self, operation: NodeOperation) -> NodeOperation:
        read: NodeOperation = await self._api.get(NODE_OPERATIONS, operation.metadata.name)
        return read

    async def _write(self, operation: NodeOperation, status: NodeOperationStatus) -> NodeOperation:
        if status.started_at is None and operation.status.started_at is not None:
            status = msgspec.structs.replace(status, started_at=operation.status.started_at)
        new = msgspec.structs.replace(operation, status=status)
        written: NodeOperation = await self._api.replace(NODE_OPERATIONS, new, subresource="status")
        return written
