"""The agent's sign of life."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

from fleetwell.kube.client import Client
from fleetwell.kube.heartbeat import HeartbeatLease
from kube.fake_api import Answer, FakeApi, status

ONE = "/apis/coordination.k8s.io/v1/namespaces/fw/leases/node-1"
ALL = "/apis/coordination.k8s.io/v1/namespaces/fw/leases"
LEASE = Answer(body={"metadata": {"name": "node-1"}})


def _wall() -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, 6, UTC)


async def test_a_beat_is_one_small_write(api: FakeApi, client: Client) -> None:
    api.answer("PATCH", ONE, LEASE)
    heartbeat = HeartbeatLease(client, name="node-1", namespace="fw", identity="agent", wall=_wall, now=lambda: 7.0)
    await heartbeat.beat()
    (seen,) = api.seen
    assert seen.body["spec"] == {
        "holderIdentity": "agent",
        "leaseDurationSeconds": 60,
        "renewTime": "2026-01-02T03:04:05.000006Z",
    }
    assert heartbeat.last_beat == 7.0


async def test_a_missing_lease_is_made(api: FakeApi, client: Client) -> None:
    api.answer("POST", ALL, Answer(201, LEASE.body))
    await HeartbeatLease(client, name="node-1", namespace="fw", identity="agent").beat()
    assert [seen.method for seen in api.seen] == ["PATCH", "POST"]


async def test_a_process_that_does_not_work_does_not_beat_and_failures_are_tried_again(
    api: FakeApi, client: Client
) -> None:
    api.answer("PATCH", ONE, status(500, "InternalError", "boom"), LEASE)
    waits: list[float] = []
    working = [True, True, False]

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise asyncio.CancelledError

    heartbeat = HeartbeatLease(
        client, name="node-1", namespace="fw", identity="agent", sleep=sleep, alive=lambda: working.pop(0)
    )
    with contextlib.suppress(asyncio.CancelledError):
        await heartbeat.run()
    assert waits[0] <= 1.0
    assert waits[1:] == [60.0, 60.0]
    assert len(api.seen) == 2
