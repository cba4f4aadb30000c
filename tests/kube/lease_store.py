"""One Lease at a simulated API server, behind a network that delays, loses and cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from fleetwell.kube.errors import AlreadyExists, Conflict, NotFound, Status, Unreachable
from fleetwell.kube.objects import Lease, ObjectMeta
from fleetwell.kube.resource import Resource
from kube.virtual_time import VirtualTime


@dataclass(frozen=True)
class Fate:
    """What becomes of one request: seconds until the server acts, seconds until the answer is back, or never."""

    there: float = 0.01
    back: float = 0.01
    lost: bool = False


class LeaseStore:
    """The record and its resourceVersion, as etcd would keep them."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self._version = 0

    def read(self) -> Lease:
        if self.lease is None:
            raise NotFound("GET Lease", Status(code=404, reason="NotFound"))
        return self.lease

    def create(self, lease: Lease) -> Lease:
        if self.lease is not None:
            raise AlreadyExists("CREATE Lease", Status(code=409, reason="AlreadyExists"))
        return self._keep(lease)

    def replace(self, lease: Lease) -> Lease:
        if self.read().metadata.resource_version != lease.metadata.resource_version:
            raise Conflict("PUT Lease", Status(code=409, reason="Conflict"))
        return self._keep(lease)

    def _keep(self, lease: Lease) -> Lease:
        self._version += 1
        meta: ObjectMeta = msgspec.structs.replace(lease.metadata, resource_version=str(self._version))
        self.lease = msgspec.structs.replace(lease, metadata=meta)
        return self.lease


class LeaseLink:
    """One candidate's way to the store; offers the part of ``Client`` that a lease uses."""

    fence = None

    def __init__(self, store: LeaseStore, time: VirtualTime, fates: Iterator[Fate]) -> None:
        self._store = store
        self._time = time
        self._fates = fates
        self._carrying: set[asyncio.Task[None]] = set()

    def without_retries(self) -> LeaseLink:
        return self

    async def abandon(self) -> None:
        """Drop what is still under way."""
        for task in list(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def get(self, _: Resource[Lease], name: str, namespace: str, *, timeout: float) -> Lease:
        del name, namespace
        return await self._carry(self._store.read, timeout)

    async def create(self, _: Resource[Lease], lease: Lease, namespace: str, *, timeout: float) -> Lease:
        del namespace
        return await self._carry(lambda: self._store.create(lease), timeout)

    async def replace(self, _: Resource[Lease], lease: Lease, namespace: str, *, timeout: float) -> Lease:
        del namespace
        return await self._carry(lambda: self._store.replace(lease), timeout)

    async def _carry(self, act: Callable[[], Lease], timeout: float) -> Lease:
        """Have the server act at its time, whether or not the caller still waits by then."""
        fate = next(self._fates)
        outcome: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        if not fate.lost:
            task = asyncio.create_task(self._arrive(act, fate, outcome))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)
        answered = not fate.lost and fate.there + fate.back <= timeout
        await self._time.sleep(fate.there + fate.back if answered else timeout)
        if not answered:
            raise Unreachable("lease request", "no answer", sent=True)
        return outcome.result()

    async def _arrive(self, act: Callable[[], Lease], fate: Fate, outcome: asyncio.Future[Lease]) -> None:
        await self._time.sleep(fate.there)
        try:
            outcome.set_result(act())
        except (NotFound, Conflict, AlreadyExists) as error:
            outcome.set_exception(error)
            outcome.exception()  # the caller may have given up: then nobody else looks
