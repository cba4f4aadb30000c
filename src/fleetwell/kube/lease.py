"""Leadership that cannot be held twice: a Lease with a fence.

The holder may act until ``renew_deadline`` seconds after it *sent* its last successful renewal, measured on a clock
that runs through suspend; another takes over only after it has itself seen the record unchanged for the record's whole
duration, which is longer. Nothing compares the clocks of two machines: the times written in the Lease are for people.
A request that would still be open at the deadline is not sent at all (``fence``).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import msgspec
import structlog

from fleetwell.kube.client import Client
from fleetwell.kube.errors import AlreadyExists, Conflict, Fenced, KubeError, NotFound
from fleetwell.kube.objects import Lease, LeaseSpec, ObjectMeta
from fleetwell.kube.resource import LEASES

log = structlog.get_logger(__name__)


def boottime() -> float:
    """Seconds since boot, including time suspended: a laptop's lid or a paused VM must not stretch a lease."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def microtime(at: datetime) -> str:
    """Write a time as Kubernetes' MicroTime."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaderLease:
    """One candidate's part in the election, for one term: once lost, make a new one or (better) end the process.

    ``async with`` waits for leadership and gives it back at the end; effects must have ended by then. Pass a client
    without a fence; give the effects ``client.fenced_by(lease.fence)``. ``identity`` must be unique to the process.
    ``epoch`` is the Lease's number of transitions, larger in each term.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry: float = 2.0,
        now: Callable[[], float] = boottime,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not 0 < retry < renew_deadline / 2 < renew_deadline < duration:
            given = f"{retry=:g}, {renew_deadline=:g}, {duration=:g}"
            msg = f"a lease needs retry < renew_deadline / 2 and renew_deadline < duration, not {given}"
            raise ValueError(msg)
        if client.fence is not None:
            msg = "the lease's own requests must not be fenced: give it the client that fenced_by() was called on"
            raise ValueError(msg)
        self.identity = identity
        self.lost = asyncio.Event()
        self.epoch = 0
        self._client = client.without_retries()
        self._name = name
        self._namespace = namespace
        self._duration = duration
        self._renew_deadline = renew_deadline
        self._retry = retry
        self._request_timeout = renew_deadline / 2
        self._now = now
        self._sleep = sleep
        self._wall = wall
        self._held: Lease | None = None
        self._renewal_sent: float | None = None
        self._observed: tuple[str, float] | None = None
        self._terms = 0
        """The number of the latest term that was seen: one that follows has a larger one, also on a new Lease."""
        self._task: asyncio.Task[None] | None = None

    @property
    def leading(self) -> bool:
        """Whether something may still be done, were it to take no time."""
        return self._renewal_sent is not None and self._now() < self._renewal_sent + self._renew_deadline

    def fence(self, timeout: float) -> None:
        """Refuse a request that could still be open when leadership may end.

        Raises:
            Fenced: not the leader, or ``now + timeout`` is not before the deadline.
        """
        if self._renewal_sent is None:
            msg = f"{self.identity} does not hold lease {self._namespace}/{self._name}: nothing is sent"
            raise Fenced(msg)
        left = self._renewal_sent + self._renew_deadline - self._now()
        if timeout >= left:
            msg = (
                f"{self.identity} is sure of lease {self._namespace}/{self._name} for {max(left, 0):.1f} s, and the "
                f"request may take {timeout:g} s: not sent"
            )
            raise Fenced(msg)

    async def __aenter__(self) -> Self:
        """Wait for leadership, then keep renewing in a task of its own."""
        await self.acquire()
        self._task = asyncio.create_task(self._keep(), name=f"lease {self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop renewing and hand the lease back, so that the next leader need not wait."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._release()

    async def acquire(self) -> None:
        """Ask every ``retry`` seconds until this candidate leads."""
        while not await self._try_acquire():
            await self._sleep(self._retry)
        log.info("leading", lease=self._name, identity=self.identity, epoch=self.epoch)

    async def _try_acquire(self) -> bool:
        try:
            found = await self._client.get(LEASES, self._name, self._namespace, timeout=self._request_timeout)
        except NotFound:
            return self._has_vanished_for_long() and await self._write(None, transitions=self._terms + 1)
        except KubeError as error:
            log.warning("lease cannot be read", lease=self._name, why=str(error))
            return False
        self._terms = max(self._terms, found.spec.lease_transitions)
        if not self._may_take(found):
            return False
        return await self._write(found, transitions=found.spec.lease_transitions + 1)

    def _may_take(self, found: Lease) -> bool:
        """Whether the holder has given it up, or has shown no sign for its whole duration since *we* first looked."""
        version = found.metadata.resource_version
        if self._observed is None or self._observed[0] != version:
            self._observed = (version, self._now())
        if not found.spec.holder_identity:
            return True
        promised = max(found.spec.lease_duration_seconds or 0, self._duration)
        return self._now() - self._observed[1] > promised

    def _has_vanished_for_long(self) -> bool:
        """Whether nobody can still hold a Lease that was deleted: its holder learns of that with his next renewal.

        Where we never saw one there was none, as far as anybody can tell.
        """
        if self._observed is None:
            return True
        if self._observed[0]:
            self._observed = ("", self._now())
        return self._now() - self._observed[1] > self._duration

    async def _write(self, basis: Lease | None, *, transitions: int) -> bool:
        """Write ourselves as the holder on top of ``basis``; the time that counts is the one before it is sent."""
        now = microtime(self._wall())
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self._duration),
            acquire_time=basis.spec.acquire_time if basis is not None and basis is self._held else now,
            renew_time=now,
            lease_transitions=transitions,
        )
        sent = self._now()
        try:
            if basis is None:
                fresh = Lease(metadata=ObjectMeta(name=self._name, namespace=self._namespace), spec=spec)
                written = await self._client.create(LEASES, fresh, self._namespace, timeout=self._request_timeout)
            else:
                changed = msgspec.structs.replace(basis, spec=spec)
                written = await self._client.replace(LEASES, changed, self._namespace, timeout=self._request_timeout)
        except (Conflict, AlreadyExists):
            return False
        except KubeError as error:
            log.warning("lease cannot be written", lease=self._name, why=str(error))
            return False
        self._held = written
        self._renewal_sent = sent
        self.epoch = transitions
        return True

    async def _keep(self) -> None:
        try:
            while self.leading:
                await self._sleep(self._retry)
                if not await self._renew():
                    log.error("lease taken by another", lease=self._name, identity=self.identity, epoch=self.epoch)
                    return
            log.error("lease not renewed in time", lease=self._name, identity=self.identity, epoch=self.epoch)
        finally:
            self._renewal_sent = None
            self.lost.set()

    async def _renew(self) -> bool:
        """Renew once; False only when another is known to hold the lease."""
        if self._held is None or not self.leading or await self._write(self._held, transitions=self.epoch):
            return True
        # A conflict may be our own earlier write, whose answer was lost. Only what stands there now can tell.
        try:
            found = await self._client.get(LEASES, self._name, self._namespace, timeout=self._request_timeout)
        except NotFound:
            return False
        except KubeError:
            return True
        if found.spec.holder_identity != self.identity or found.spec.lease_transitions != self.epoch:
            return False
        self._held = found
        return True

    async def _release(self) -> None:
        held, self._held = self._held, None
        self._renewal_sent = None
        if held is None:
            return
        spec = msgspec.structs.replace(held.spec, holder_identity="", lease_duration_seconds=1)
        try:
            given_back = msgspec.structs.replace(held, spec=spec)
            await self._client.replace(LEASES, given_back, self._namespace, timeout=self._request_timeout)
        except KubeError as error:
            log.info("lease not handed back; it runs out by itself", lease=self._name, why=str(error))
