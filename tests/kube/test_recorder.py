"""Events: one with a count for many equal ones, and never in the way."""

from __future__ import annotations

from fleetwell.kube.client import Client
from fleetwell.kube.objects import ObjectReference
from fleetwell.kube.recorder import EventRecorder
from kube.fake_api import Answer, FakeApi, Seen, status

ALL = "/api/v1/namespaces/default/events"
NODE = ObjectReference(api_version="v1", kind="Node", name="n1", uid="u1")


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def _recorder(client: Client, clock: Clock, *, burst: int = 25, capacity: int = 100) -> EventRecorder:
    return EventRecorder(client, component="fleetwell", instance="pod-1", now=clock, burst=burst, capacity=capacity)


def _take_all(api: FakeApi) -> None:
    api.answer("POST", ALL, Answer(201, {}))


def _counts(seen: list[Seen]) -> list[int]:
    return [request.body["count"] for request in seen]


async def test_an_event_says_who_what_and_why(api: FakeApi, client: Client) -> None:
    _take_all(api)
    recorder = _recorder(client, Clock())
    recorder.record(NODE, "Quarantined", "GPU 3 fell off the bus", warning=True)
    await recorder.flush()
    (seen,) = api.seen
    body = seen.body
    assert body["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
    assert (body["reason"], body["type"], body["count"]) == ("Quarantined", "Warning", 1)
    assert body["reportingComponent"] == "fleetwell"
    assert body["metadata"]["name"].startswith("n1.")


async def test_equal_events_within_the_window_bump_one_count(api: FakeApi, client: Client) -> None:
    _take_all(api)
    clock = Clock()
    recorder = _recorder(client, clock)
    recorder.record(NODE, "Held", "budget")
    await recorder.flush()
    name = api.seen[0].body["metadata"]["name"]
    api.answer("PATCH", f"{ALL}/{name}", Answer(body={}))
    for _ in range(3):
        recorder.record(NODE, "Held", "budget")
    await recorder.flush()
    assert [(seen.method, seen.body["count"]) for seen in api.seen] == [("POST", 1), ("PATCH", 4)]
    clock.at = 1000.0
    recorder.record(NODE, "Held", "budget")
    await recorder.flush()
    assert _counts(api.asked("POST")) == [1, 1]


async def test_an_event_that_the_server_has_forgotten_is_made_again(api: FakeApi, client: Client) -> None:
    _take_all(api)
    recorder = _recorder(client, Clock())
    for _ in range(2):
        recorder.record(NODE, "Held", "budget")
        await recorder.flush()
    assert [(seen.method, seen.body["count"]) for seen in api.seen] == [("POST", 1), ("PATCH", 2), ("POST", 2)]


async def test_800_000_equal_events_are_a_handful_of_writes(api: FakeApi, client: Client) -> None:
    _take_all(api)
    clock = Clock()
    recorder = _recorder(client, clock, burst=3)
    for burst in range(8):
        for _ in range(100):
            recorder.record(NODE, "Xid", "79")
        await recorder.flush()
        clock.at = burst + 1.0
    assert len(api.asked("POST")) == 3
    clock.at = 70.0
    recorder.record(NODE, "Xid", "79")
    await recorder.flush()
    assert _counts(api.asked("POST"))[-1] == 801


async def test_memory_is_bounded_and_what_is_left_out_is_counted(api: FakeApi, client: Client) -> None:
    _take_all(api)
    recorder = _recorder(client, Clock(), capacity=10)
    for number in range(50):
        recorder.record(NODE, "Said", f"hostile {number} " + "x" * 5000)
    await recorder.flush()
    assert len(api.asked("POST")) <= 10
    assert recorder.dropped >= 40
    assert all(len(seen.body["message"]) <= 1024 for seen in api.seen)


async def test_a_refused_event_raises_nothing(api: FakeApi, client: Client) -> None:
    api.answer("POST", ALL, status(403, "Forbidden", "no"))
    async with _recorder(client, Clock()) as recorder:
        recorder.record(NODE, "Held", "budget")
    assert recorder.dropped == 1


async def test_leaving_writes_what_is_noted(api: FakeApi, client: Client) -> None:
    _take_all(api)
    async with _recorder(client, Clock()) as recorder:
        recorder.record(NODE, "Held", "budget")
    assert len(api.asked("POST")) == 1
