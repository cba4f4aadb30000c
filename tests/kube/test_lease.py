"""Leadership: taken late, lost early, never held twice."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetwell.kube.client import Client
from fleetwell.kube.errors import Fenced
from fleetwell.kube.lease import LeaderLease
from kube.lease_store import Fate, LeaseLink, LeaseStore
from kube.virtual_time import VirtualTime, settle

GOOD = Fate()
LOST = Fate(lost=True)


class Wire(Iterator[Fate]):
    """Fates that a test can switch."""

    def __init__(self) -> None:
        self.fate = GOOD

    def __next__(self) -> Fate:
        return self.fate


def _candidate(
    store: LeaseStore, time: VirtualTime, fates: Iterator[Fate], identity: str, offset: float = 0.0
) -> LeaderLease:
    link = cast("Client", LeaseLink(store, time, fates))
    return LeaderLease(
        link, name="controller", namespace="fw", identity=identity, now=lambda: time.now() + offset, sleep=time.sleep
    )


@contextlib.asynccontextmanager
async def _running(lease: LeaderLease, time: VirtualTime) -> AsyncIterator[asyncio.Task[None]]:
    """Run a candidate for a test and let it go without handing the lease back."""

    async def run() -> None:
        await lease.acquire()
        await lease._keep()

    task = asyncio.create_task(run())
    try:
        await time.advance(1)
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await cast("LeaseLink", lease._client).abandon()


async def test_the_first_candidate_leads_and_keeps_leading() -> None:
    store, time, wire = LeaseStore(), VirtualTime(), Wire()
    lease = _candidate(store, time, wire, "a")
    with pytest.raises(Fenced, match="does not hold"):
        lease.fence(0)
    async with _running(lease, time):
        await time.advance(300)
        assert lease.leading
        assert lease.epoch == 1
        lease.fence(5)
        assert not lease.lost.is_set()


async def test_the_fence_shuts_a_requests_length_before_the_deadline() -> None:
    store, time, wire = LeaseStore(), VirtualTime(), Wire()
    lease = _candidate(store, time, wire, "a")
    async with _running(lease, time):
        wire.fate = LOST
        await time.advance(4)
        lease.fence(2.0)
        await time.advance(3)
        with pytest.raises(Fenced, match="not sent"):
            lease.fence(5.0)
        lease.fence(0.5)
        await time.advance(10)
        with pytest.raises(Fenced):
            lease.fence(0.0)
        assert lease.lost.is_set()


async def test_a_renewal_counts_from_when_it_was_sent_not_from_when_it_was_answered() -> None:
    store, time, wire = LeaseStore(), VirtualTime(), Wire()
    lease = _candidate(store, time, wire, "a")
    async with _running(lease, time):
        wire.fate = Fate(back=4)
        await time.advance(2)
        wire.fate = LOST
        await time.advance(8)
        assert lease.leading
        await time.advance(2)
        assert not lease.leading


async def test_a_request_that_hangs_does_not_hold_up_the_loss() -> None:
    store, time, wire = LeaseStore(), VirtualTime(), Wire()
    lease = _candidate(store, time, wire, "a")
    async with _running(lease, time):
        wire.fate = Fate(there=1000)
        await time.advance(10.1)
        assert not lease.leading
        await time.advance(8)
        assert lease.lost.is_set()


async def test_another_takes_over_only_after_watching_the_record_for_its_whole_duration() -> None:
    store, time, wire = LeaseStore(), VirtualTime(), Wire()
    first, second = _candidate(store, time, wire, "a"), _candidate(store, time, Wire(), "b", offset=1e6)
    async with _running(first, time), _running(second, time):
        await time.advance(60)
        assert (first.leading, second.leading) == (True, False)
        wire.fate = LOST
        await time.advance(14)
        assert (first.leading, second.leading) == (False, False)
        await time.advance(6)
        assert (first.leading, second.leading) == (False, True)
        assert second.epoch == 2
        wire.fate = GOOD
        await time.advance(60)
        assert first.lost.is_set()
        assert second.leading


async def test_a_renewal_whose_answer_was_lost_is_recognised_as_our_own() -> None:
    store, time, wire = LeaseStore(), VirtualTime(), Wire()
    lease = _candidate(store, time, wire, "a")
    async with _running(lease, time):
        wire.fate = Fate(back=6)
        await time.advance(3)
        wire.fate = GOOD
        await time.advance(120)
        assert lease.leading
        assert not lease.lost.is_set()


async def test_a_lease_that_somebody_deleted_or_took_is_lost() -> None:
    store, time = LeaseStore(), VirtualTime()
    lease = _candidate(store, time, Wire(), "a")
    async with _running(lease, time):
        store.lease = None
        await time.advance(3)
        assert lease.lost.is_set()
        assert not lease.leading


async def test_leaving_hands_the_lease_over_at_once() -> None:
    store, time, wire = LeaseStore(), VirtualTime(), Wire()
    leave = asyncio.Event()

    async def lead(lease: LeaderLease) -> None:
        async with lease:
            await leave.wait()

    first = _candidate(store, time, wire, "a")
    leading = asyncio.create_task(lead(first))
    await time.advance(1)
    second = _candidate(store, time, Wire(), "b")
    async with _running(second, time):
        leave.set()
        await settle()
        with pytest.raises(Fenced):
            first.fence(0)
        await time.advance(3)
        assert second.leading
        assert second.epoch == 2
        await leading


async def test_times_that_cannot_be_safe_are_refused() -> None:
    link = cast("Client", LeaseLink(LeaseStore(), VirtualTime(), Wire()))
    with pytest.raises(ValueError, match="renew_deadline < duration"):
        LeaderLease(link, name="l", namespace="n", identity="a", duration=10, renew_deadline=10)


async def test_a_lease_that_somebody_deletes_is_not_taken_while_its_holder_may_still_act() -> None:
    time, store, wire = VirtualTime(), LeaseStore(), Wire()
    first = _candidate(store, time, wire, "first")
    second = _candidate(store, time, itertools.repeat(GOOD), "second")
    async with _running(first, time), _running(second, time):
        await time.advance(5)
        wire.fate = LOST  # the holder does not hear of it, and is sure of its lease for as long as it may be
        store.lease = None
        held_by_both = 0
        for _ in range(30):
            await time.advance(1)
            held_by_both += first.leading and second.leading
        assert not held_by_both
        assert second.leading
        assert second.epoch > first.epoch


@dataclass(frozen=True)
class Act:
    """Something done under the fence: it may take effect at any time from ``start`` to ``end``."""

    who: str
    epoch: int
    start: float
    end: float


ACT_SECONDS = 5.0
_seconds = st.floats(0.0, 12.0)
_weather = st.one_of(st.just(GOOD), st.just(LOST), st.builds(Fate, there=_seconds, back=_seconds))
_fates = st.lists(st.tuples(_weather, st.integers(1, 8)), min_size=1, max_size=12).map(
    lambda spells: [fate for fate, requests in spells for _ in range(requests)]
)


@settings(max_examples=100, deadline=None)
@given(_fates, _fates, st.lists(st.floats(0.0, 25.0), min_size=1, max_size=12), st.floats(-1e6, 1e6))
def test_two_candidates_behind_any_network_never_both_act(
    ones: list[Fate], others: list[Fate], pauses: list[float], offset: float
) -> None:
    acts = asyncio.run(_contest(ones, others, pauses, offset))
    in_order = sorted(acts, key=lambda act: act.start)
    for before, after in itertools.combinations(in_order, 2):
        if before.who != after.who:
            assert before.end <= after.start, f"{before} overlaps {after}"
            assert before.epoch < after.epoch


async def _contest(ones: list[Fate], others: list[Fate], pauses: list[float], offset: float) -> list[Act]:
    """Let two candidates act whenever their fence allows, each process stopping now and then for a while."""
    store, time = LeaseStore(), VirtualTime()
    acts: list[Act] = []
    stops = itertools.cycle(pauses)

    async def campaign(identity: str, fates: list[Fate], ahead: float) -> None:
        link = cast("Client", LeaseLink(store, time, itertools.cycle(fates)))

        async def sleep(seconds: float) -> None:
            # Some sleeps last longer: the process was stopped.
            await time.sleep(seconds + max(0.0, next(stops) - 15.0))

        while True:
            # The margins are small, so that a mistake in any of them shows.
            lease = LeaderLease(
                link,
                name="l",
                namespace="n",
                identity=identity,
                renew_deadline=14.0,
                now=lambda: time.now() + ahead,
                sleep=sleep,
            )
            async with lease:
                while not lease.lost.is_set():
                    with contextlib.suppress(Fenced):
                        lease.fence(ACT_SECONDS)
                        acts.append(Act(identity, lease.epoch, time.now(), time.now() + ACT_SECONDS))
                    await time.sleep(0.7)

    tasks = [asyncio.create_task(campaign("a", ones, 0.0)), asyncio.create_task(campaign("b", others, offset))]
    await time.advance(90)
    for task in tasks:
        task.cancel()
    await time.advance(30)
    await asyncio.gather(*tasks, return_exceptions=True)
    return acts
