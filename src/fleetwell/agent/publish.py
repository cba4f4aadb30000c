"""Brings what the agent knows to the API server: conditions to its Node, everything else to its NodeHealth.

Level-triggered: whatever happened meanwhile, what is written is what is true now, and it is written until the server
has it. Conditions are merged by type, so nobody else's is touched; their transition time moves only with the status,
and is counted from what the server holds, so neither a restart of the agent nor another writer's word resets a clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import msgspec
import structlog

from fleetwell.agent.assessment import without_counts
from fleetwell.api.node_health import NodeHealthStatus
from fleetwell.api.resources import NODE_HEALTHS, NodeHealth
from fleetwell.health.conditions import Condition
from fleetwell.health.vocabulary import ConditionStatus, ConditionType
from fleetwell.kube import objects
from fleetwell.kube.backoff import Backoff
from fleetwell.kube.client import PatchKind
from fleetwell.kube.errors import AlreadyExists, ApiError, KubeError, NotFound
from fleetwell.kube.objects import Node, ObjectMeta, OwnerReference
from fleetwell.kube.resource import NODES

log = structlog.get_logger(__name__)

COALESCE = 0.02
"""Seconds that one change waits for others of the same moment."""
COUNT_GAP = 60.0
"""Seconds between two writes of a NodeHealth in which nothing but counts has changed."""

_OURS = frozenset(kind.value for kind in ConditionType)


class Api(Protocol):
    """What is needed of :class:`fleetwell.kube.client.Client`."""

    async def patch(
        self, resource: Any, name: str, body: Any, *, kind: PatchKind = ..., subresource: str | None = ...
    ) -> Any:
        """Change part of an object."""

    async def create(self, resource: Any, obj: Any) -> Any:
        """Create an object."""


class Publisher:
    """Writes one node's conditions and NodeHealth.

    :param conditions: gives the conditions as they should be.
    :param status: gives the NodeHealth's status as it should be.
    :param looked: whether every probe has looked since the agent began: before that a NodeHealth of an earlier agent
        says more than ours would, and a controller must not see it fall back to "nothing known".
    """

    def __init__(
        self,
        api: Api,
        node: Node,
        conditions: Callable[[], tuple[Condition, ...]],
        status: Callable[[], NodeHealthStatus],
        *,
        looked: Callable[[], bool] = lambda: True,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        backoff: Backoff | None = None,
    ) -> None:
        self.writes = 0
        self.failures = 0
        self._api = api
        self._node = node
        self._on_server = _own(node.status.conditions)
        self._conditions = conditions
        self._status = status
        self._looked = looked
        self._written: NodeHealthStatus | None = None
        self._written_at = 0.0
        self._wall = wall
        self._monotonic = monotonic
        self._sleep = sleep
        self._backoff = backoff or Backoff(0.2, 15.0)
        self._dirty = asyncio.Event()

    def wake(self) -> None:
        """Say that something may have changed."""
        self._dirty.set()

    def node_changed(self, node: Node) -> None:
        """Take in the Node as the server has it: what somebody else wrote into our conditions is taken back."""
        self._node = node
        self._on_server = _own(node.status.conditions)
        if self._outdated(self._conditions()):
            self.wake()

    def health_gone(self) -> None:
        """Take in that the NodeHealth was deleted."""
        self._written = None
        self.wake()

    async def run(self) -> None:
        """Publish whatever changes, until cancelled."""
        while True:
            await self._dirty.wait()
            await self._sleep(COALESCE)
            self._dirty.clear()
            try:
                await self.publish()
            except KubeError as error:
                self.failures += 1
                pause = self._backoff.after_failure(at_least=error.retry_after if isinstance(error, ApiError) else None)
                log.warning("not published; it is tried again", why=str(error), retry_in=round(pause, 1))
                await self._sleep(pause)
                self.wake()
            else:
                self._backoff.reset()

    async def publish(self) -> None:
        """Write what differs from what the server has.

        :raises KubeError: the server did not take it; everything is still to be written.
        """
        outdated = self._outdated(self._conditions())
        if outdated:
            node = await self._api.patch(
                NODES, self._node.metadata.name, {"status": {"conditions": outdated}}, subresource="status"
            )
            self.writes += 1
            self._node = node
            self._on_server = _own(node.status.conditions)
        if not self._looked():
            return
        status = self._status()
        if self._is_news(status):
            await self._write_health(status)

    def adopt(self, published: NodeHealthStatus) -> None:
        """Take in what the server's NodeHealth holds, so that the same is not written again."""
        self._written = published
        self._written_at = self._monotonic()

    def _outdated(self, wanted: Iterable[Condition]) -> list[dict[str, str]]:
        now = _rfc3339(self._wall())
        changes = []
        for condition in wanted:
            there = self._on_server.get(condition.type.value)
            said = (condition.status.value, condition.reason, condition.message)
            if there is not None and (there.status, there.reason, there.message) == said:
                continue
            same_status = there is not None and there.status == condition.status.value
            since = there.last_transition_time if there is not None and same_status else None
            changes.append(
                {
                    "type": condition.type.value,
                    "status": condition.status.value,
                    "reason": condition.reason,
                    "message": condition.message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": since or now,
                }
            )
        return changes

    def _is_news(self, status: NodeHealthStatus) -> bool:
        if self._written is None or without_counts(self._written) != without_counts(status):
            return True
        return self._written != status and self._monotonic() - self._written_at >= COUNT_GAP

    async def _write_health(self, status: NodeHealthStatus) -> None:
        # The whole status in one patch, whoever changed the spec meanwhile: a merge patch would keep what is left out.
        name = self._node.metadata.name
        body = [{"op": "add", "path": "/status", "value": msgspec.to_builtins(status)}]
        try:
            await self._api.patch(NODE_HEALTHS, name, body, kind=PatchKind.JSON, subresource="status")
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                await self._api.create(NODE_HEALTHS, NodeHealth(metadata=self._metadata()))
            await self._api.patch(NODE_HEALTHS, name, body, kind=PatchKind.JSON, subresource="status")
        self.writes += 1
        self._written = status
        self._written_at = self._monotonic()

    def _metadata(self) -> ObjectMeta:
        """Let the NodeHealth go with its Node."""
        owner = OwnerReference(
            api_version="v1", kind="Node", name=self._node.metadata.name, uid=self._node.metadata.uid
        )
        return ObjectMeta(name=self._node.metadata.name, owner_references=[owner])


def published_conditions(node: Node) -> tuple[Condition, ...]:
    """Read our conditions from a Node, for triage to adopt; what the controller set in our silence is left out."""
    return tuple(
        Condition(
            type=ConditionType(there.type),
            status=ConditionStatus(there.status),
            reason=there.reason,
            message=there.message,
        )
        for there in _own(node.status.conditions).values()
        if there.reason != AGENT_SILENT and there.status in set(ConditionStatus)
    )


AGENT_SILENT = "AgentSilent"
"""Reason of the conditions that the controller sets when the heartbeat stops."""


def _own(conditions: Iterable[objects.Condition]) -> dict[str, objects.Condition]:
    return {condition.type: condition for condition in conditions if condition.type in _OURS}


def _rfc3339(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
