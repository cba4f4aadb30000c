"""Says "I am alive" once a minute, at the price of one small write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog

from fleetwell.kube.backoff import Backoff
from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.errors import AlreadyExists, KubeError, NotFound
from fleetwell.kube.lease import microtime
from fleetwell.kube.objects import Lease, LeaseSpec, ObjectMeta, OwnerReference
from fleetwell.kube.resource import LEASES

log = structlog.get_logger(__name__)


class HeartbeatLease:
    """A Lease whose ``renewTime`` shows that its writer lives and works.

    ``alive`` is asked before each beat: a process that runs but no longer does its work must look dead. ``last_beat``
    is the monotonic time at which the last successful beat was sent, or None.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        period: float = 60.0,
        owner: OwnerReference | None = None,
        alive: Callable[[], bool] = lambda: True,
        backoff: Backoff | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.last_beat: float | None = None
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._period = period
        self._owner = owner
        self._alive = alive
        self._backoff = backoff or Backoff(1.0, period)
        self._now = now
        self._sleep = sleep
        self._wall = wall

    async def run(self) -> None:
        """Beat until cancelled; a failed beat is tried again with growing pauses, never raised."""
        while True:
            pause = self._period
            if not self._alive():
                log.warning("no heartbeat: the process runs but does not do its work", lease=self._name)
            else:
                try:
                    await self.beat()
                except KubeError as error:
                    pause = self._backoff.after_failure()
                    log.warning("heartbeat not written", lease=self._name, why=str(error), retry_in=pause)
                else:
                    self._backoff.reset()
            await self._sleep(pause)

    async def beat(self) -> None:
        """Renew once, creating the Lease where it is missing.

        Raises:
            KubeError: it could not be written.
        """
        sent = self._now()
        spec = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=round(self._period),
            renew_time=microtime(self._wall()),
        )
        try:
            await self._renew(spec)
        except NotFound:
            owners = [self._owner] if self._owner else []
            fresh = Lease(
                metadata=ObjectMeta(name=self._name, namespace=self._namespace, owner_references=owners), spec=spec
            )
            try:
                await self._client.create(LEASES, fresh, self._namespace)
            except AlreadyExists:
                await self._renew(spec)
        self.last_beat = sent

    async def _renew(self, spec: LeaseSpec) -> None:
        body = {
            "spec": {
                "holderIdentity": spec.holder_identity,
                "leaseDurationSeconds": spec.lease_duration_seconds,
                "renewTime": spec.renew_time,
            }
        }
        await self._client.patch(LEASES, self._name, body, kind=PatchKind.MERGE, namespace=self._namespace)
