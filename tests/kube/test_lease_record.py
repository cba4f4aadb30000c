"""What stands in a Lease, and whose it is when the answer to a renewal does not say."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import cast

import msgspec
import pytest

from fleetwell.kube.client import Client
from fleetwell.kube.errors import Fenced
from fleetwell.kube.lease import LeaderLease, boottime, microtime
from fleetwell.kube.objects import Lease, LeaseSpec, ObjectMeta
from kube.lease_store import Fate, LeaseLink, LeaseStore
from kube.virtual_time import VirtualTime, settle

GOOD, LOST = Fate(), Fate(lost=True)
WALL = dt.datetime(2026, 11, 30, 12, 0, tzinfo=dt.UTC)


class Ground:
    """A store, a clock, and candidates whose leaderships a test holds and ends."""

    def __init__(self) -> None:
        self.store = LeaseStore()
        self.time = VirtualTime()

    def candidate(self, identity: str = "a", fates: Iterator[Fate] | None = None) -> LeaderLease:
        link = cast("Client", LeaseLink(self.store, self.time, fates or itertools.repeat(GOOD)))
        return LeaderLease(
            link,
            name="controller",
            namespace="fw",
            identity=identity,
            now=self.time.now,
            sleep=self.time.sleep,
            wall=lambda: WALL + dt.timedelta(seconds=self.time.now()),
        )

    @contextlib.asynccontextmanager
    async def led(self, lease: LeaderLease, seconds: float) -> AsyncIterator[None]:
        """Let a candidate try to lead for a while, and longer while the block lasts; then end it in order."""

        async def lead() -> None:
            async with lease as held:
                assert held is lease
                await asyncio.Event().wait()

        task = asyncio.create_task(lead())
        try:
            await self.time.advance(seconds)
            yield
        finally:
            task.cancel()
            await settle()
            await self.time.advance(20)
            await asyncio.gather(task, return_exceptions=True)

    @property
    def spec(self) -> LeaseSpec:
        assert self.store.lease is not None
        return self.store.lease.spec

    def edit(self, **changes: object) -> None:
        """Let somebody write into the record."""
        lease = self.store.read()
        self.store.replace(msgspec.structs.replace(lease, spec=msgspec.structs.replace(lease.spec, **changes)))


async def test_the_record_says_who_leads_since_when_and_for_how_long() -> None:
    ground = Ground()
    async with ground.led(ground.candidate(), 31):
        assert ground.store.lease is not None
        assert (ground.store.lease.metadata.name, ground.store.lease.metadata.namespace) == ("controller", "fw")
        assert (ground.spec.holder_identity, ground.spec.lease_duration_seconds) == ("a", 15)
        assert ground.spec.lease_transitions == 1
        assert ground.spec.acquire_time == microtime(WALL + dt.timedelta(seconds=1000.02))
        assert ground.spec.renew_time is not None
        assert ground.spec.renew_time > microtime(WALL + dt.timedelta(seconds=1028))
    assert (ground.spec.holder_identity, ground.spec.lease_duration_seconds) == ("", 1)


async def test_leadership_is_kept_as_long_as_it_is_held_and_ends_with_it() -> None:
    ground = Ground()
    lease = ground.candidate()
    async with ground.led(lease, 300):
        assert lease.leading
        lease.fence(5)
    assert not lease.leading
    with pytest.raises(Fenced):
        lease.fence(0)


async def test_a_term_that_follows_another_begins_its_own_time() -> None:
    ground = Ground()
    async with ground.led(ground.candidate("a"), 30):
        before = ground.spec.acquire_time
    async with ground.led(ground.candidate("b"), 5):
        assert ground.spec.lease_transitions == 2
        assert ground.spec.acquire_time != before


async def test_who_promised_longer_than_we_do_is_waited_for_as_long_as_that() -> None:
    ground = Ground()
    spec = LeaseSpec(holder_identity="old", lease_duration_seconds=60, lease_transitions=7)
    ground.store.create(Lease(metadata=ObjectMeta(name="controller", namespace="fw"), spec=spec))
    lease = ground.candidate()
    async with ground.led(lease, 59):
        assert not lease.leading
        await ground.time.advance(4)
        assert lease.leading
        assert lease.epoch == 8


async def test_of_two_that_create_the_record_at_once_one_waits() -> None:
    ground = Ground()
    first, second = ground.candidate("a"), ground.candidate("b")
    async with ground.led(first, 0), ground.led(second, 60):
        assert [first.leading, second.leading] == [True, False]
        assert second.epoch == 0


@pytest.mark.parametrize("taken", [{"holder_identity": "b"}, {"lease_transitions": 9}], ids=["holder", "term"])
async def test_a_record_that_is_another_holders_or_another_term_is_lost_at_the_next_renewal(
    taken: dict[str, object],
) -> None:
    ground = Ground()
    lease = ground.candidate()
    async with ground.led(lease, 10):
        ground.edit(**taken)
        await ground.time.advance(3)
        assert lease.lost.is_set()
        with pytest.raises(Fenced):
            lease.fence(0)


async def test_where_nobody_can_say_whose_it_is_leadership_is_kept_until_its_deadline() -> None:
    ground = Ground()
    # Asked, created, renewed; then somebody writes into the record, and what stands there now cannot be read.
    fates = itertools.chain([GOOD, GOOD, GOOD, GOOD, LOST], itertools.repeat(GOOD))
    lease = ground.candidate(fates=fates)
    async with ground.led(lease, 3):
        ground.edit(renew_time="edited")
        await ground.time.advance(7.5)
        assert lease.leading
        assert not lease.lost.is_set()


async def test_times_are_told_by_a_clock_that_never_stands_still() -> None:
    assert 0 < boottime() <= boottime()
