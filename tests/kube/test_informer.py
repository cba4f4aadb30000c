"""A copy that stays true: bookmarks, 410, broken and silent connections, storms of 503."""

from __future__ import annotations

import pytest

from fleetwell.kube.backoff import Backoff
from fleetwell.kube.client import Client
from fleetwell.kube.errors import ServerError
from fleetwell.kube.informer import Change, Informer
from fleetwell.kube.objects import Node
from fleetwell.kube.resource import NODES
from kube.conftest import Pauses
from kube.fake_api import Answer, FakeApi, bookmark, event, listing, node, status, until

PATH = "/api/v1/nodes"


def _told(informer: Informer[Node]) -> list[str]:
    told: list[str] = []

    def tell(change: Change[Node]) -> None:
        told.append(f"{change.kind} {change.object.metadata.name}@{change.object.metadata.resource_version}")

    informer.on_change(tell)
    return told


def _informer(client: Client, pauses: Pauses, *, seconds: float = 60.0, grace: float = 5.0) -> Informer[Node]:
    return Informer(client, NODES, sleep=pauses, backoff=Backoff(0.5, 30.0), watch_seconds=seconds, watch_grace=grace)


async def test_it_lists_and_then_follows(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", PATH, listing(5, node("a", 3), node("b", 4)))
    pieces = [event("ADDED", node("c", 6)), event("MODIFIED", node("a", 7)), event("DELETED", node("b", 8))]
    api.answer("WATCH", PATH, Answer(stream=pieces, hang=True))
    informer = _informer(client, pauses)
    told = _told(informer)
    async with informer:
        await informer.synced.wait()
        await until(lambda: len(told) == 5)
    assert told == ["ADDED a@3", "ADDED b@4", "ADDED c@6", "MODIFIED a@7", "DELETED b@8"]
    assert sorted(item.metadata.name for item in informer.items()) == ["a", "c"]
    assert informer.get("b") is None
    assert informer.last_contact is not None
    (watch,) = api.asked("WATCH")
    assert watch.query["resourceVersion"] == "5"
    assert watch.query["allowWatchBookmarks"] == "true"
    assert 60 <= int(watch.query["timeoutSeconds"]) <= 90


async def test_one_object_is_watched_by_name(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", PATH, listing(5, node("a", 3)))
    api.answer("WATCH", PATH, Answer(stream=[], hang=True))
    async with Informer(client, NODES, name="a", sleep=pauses) as informer:
        await until(lambda: len(api.asked("WATCH")) == 1)
        assert informer.get("a") is not None
    assert [seen.query["fieldSelector"] for seen in api.seen] == ["metadata.name=a", "metadata.name=a"]


async def test_a_bookmark_is_where_the_next_watch_begins(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", PATH, listing(5))
    api.answer("WATCH", PATH, Answer(stream=[bookmark(40)]), Answer(stream=[], hang=True))
    async with _informer(client, pauses):
        await until(lambda: len(api.asked("WATCH")) == 2)
    assert api.asked("WATCH")[1].query["resourceVersion"] == "40"
    assert len(api.asked("GET")) == 1


async def test_after_410_it_lists_again_and_tells_the_difference(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer(
        "GET",
        PATH,
        listing(5, node("kept", 1), node("gone", 2), node("remade", 3)),
        listing(90, node("kept", 1), node("remade", 80, uid="another"), node("new", 81)),
    )
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    api.answer("WATCH", PATH, Answer(stream=[event("ERROR", expired)]), Answer(stream=[], hang=True))
    informer = _informer(client, pauses)
    told = _told(informer)
    async with informer:
        await until(lambda: len(api.asked("WATCH")) == 2)
    assert told[3:] == ["DELETED gone@2", "DELETED remade@3", "ADDED remade@80", "ADDED new@81"]
    assert api.asked("WATCH")[1].query["resourceVersion"] == "90"
    assert len(pauses) == 1


async def test_a_connection_cut_inside_an_event_goes_on_where_it_was(
    api: FakeApi, client: Client, pauses: Pauses
) -> None:
    api.answer("GET", PATH, listing(5, node("a", 1)))
    half = event("MODIFIED", node("a", 7))
    api.answer(
        "WATCH",
        PATH,
        Answer(stream=[event("MODIFIED", node("a", 6)), half[:30]], cut=True),
        Answer(stream=[half[:10], half[10:]], hang=True),
    )
    informer = _informer(client, pauses)
    told = _told(informer)
    async with informer:
        await until(lambda: len(told) == 3)
    assert told == ["ADDED a@1", "MODIFIED a@6", "MODIFIED a@7"]
    assert api.asked("WATCH")[1].query["resourceVersion"] == "6"
    assert len(api.asked("GET")) == 1


async def test_a_half_open_connection_is_noticed(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", PATH, listing(5, node("a", 1)))
    api.answer(
        "WATCH", PATH, Answer(stream=[b""], hang=True), Answer(stream=[event("DELETED", node("a", 9))], hang=True)
    )
    informer = _informer(client, pauses, seconds=0.05, grace=0.05)
    told = _told(informer)
    async with informer:
        await until(lambda: told[-1:] == ["DELETED a@9"])
    assert len(pauses) >= 1


async def test_a_storm_of_503_is_backed_off(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", PATH, listing(5))
    api.answer("WATCH", PATH, status(503, "ServiceUnavailable", "starting"))
    async with _informer(client, pauses) as informer:
        await until(lambda: len(pauses) >= 12)
        assert isinstance(informer.failure, ServerError)
    assert all(pause >= 0.25 * min(2**i, 60) for i, pause in enumerate(pauses[:7]))
    assert sum(pauses[:12]) > 100
    assert len(api.asked("GET")) == 1


async def test_a_server_that_was_restored_from_before_is_listed_anew(
    api: FakeApi, client: Client, pauses: Pauses
) -> None:
    api.answer("GET", PATH, listing(50, node("a", 40)), listing(5, node("a", 3)))
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    future = status(504, "Timeout", "Too large resource version: 50, current: 5", causes=causes)
    api.answer("WATCH", PATH, future, Answer(stream=[], hang=True))
    informer = _informer(client, pauses)
    told = _told(informer)
    async with informer:
        await until(lambda: len(api.asked("WATCH")) == 2)
    assert told == ["ADDED a@40", "MODIFIED a@3"]
    assert [seen.query["resourceVersion"] for seen in api.asked("WATCH")] == ["50", "5"]


async def test_an_error_with_another_cause_goes_on_where_it_was(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", PATH, listing(50))
    slow = status(504, "Timeout", "the server is slow", causes=[{"reason": "FieldValueInvalid"}])
    api.answer("WATCH", PATH, slow, Answer(stream=[], hang=True))
    async with _informer(client, pauses) as informer:
        await until(lambda: len(api.asked("WATCH")) == 2)
        await until(lambda: informer.last_contact is not None)
    assert [seen.query["resourceVersion"] for seen in api.asked("WATCH")] == ["50", "50"]
    assert len(api.asked("GET")) == 1


async def test_a_watch_that_follows_again_shows_no_failure_any_more(
    api: FakeApi, client: Client, pauses: Pauses
) -> None:
    api.answer("GET", PATH, listing(5))
    again = Answer(stream=[bookmark(6)], hang=True)
    api.answer("WATCH", PATH, status(503, "ServiceUnavailable", "starting"), again)
    shown: list[str] = []

    async def pause(seconds: float) -> None:
        shown.append(str(informer.failure))
        await pauses(seconds)

    informer = Informer(client, NODES, sleep=pause, backoff=Backoff(0.5, 30.0))
    async with informer:
        await until(lambda: len(api.asked("WATCH")) == 2 and informer.failure is None)
    assert len(shown) == 1
    assert "starting" in shown[0]


async def test_a_server_that_ends_every_watch_at_once_is_backed_off_too(
    api: FakeApi, client: Client, pauses: Pauses
) -> None:
    api.answer("GET", PATH, listing(5))
    api.answer("WATCH", PATH, Answer(stream=[]))
    async with _informer(client, pauses):
        await until(lambda: len(pauses) >= 8)
    assert pauses[7] >= 15


async def test_a_retry_after_of_the_server_is_kept(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", PATH, Answer(429, b"busy", {"Retry-After": "7"}), listing(5))
    async with _informer(client, pauses) as informer:
        await informer.synced.wait()
    assert 7 <= pauses[0] <= 7.5


async def test_one_unreadable_object_does_not_stop_the_rest(api: FakeApi, client: Client, pauses: Pauses) -> None:
    bad = node("bad", 6)
    bad["status"]["conditions"] = "none"
    api.answer("GET", PATH, listing(5, node("a", 1), {**bad, "metadata": {"name": "odd", "resourceVersion": "2"}}))
    pieces = [event("ADDED", bad), event("MODIFIED", node("a", 7))]
    api.answer("WATCH", PATH, Answer(stream=pieces), Answer(stream=[], hang=True))
    informer = _informer(client, pauses)
    told = _told(informer)
    async with informer:
        await until(lambda: len(api.asked("WATCH")) == 2)
    assert told == ["ADDED a@1", "MODIFIED a@7"]
    assert informer.undecodable == {"odd", "bad"}
    assert len(informer) == 1


async def test_an_unreadable_new_form_keeps_the_last_readable_one(api: FakeApi, client: Client, pauses: Pauses) -> None:
    bad = node("a", 6)
    bad["spec"] = []
    api.answer("GET", PATH, listing(5, node("a", 1)))
    api.answer(
        "WATCH", PATH, Answer(stream=[event("MODIFIED", bad)]), Answer(stream=[event("DELETED", bad)], hang=True)
    )
    informer = _informer(client, pauses)
    told = _told(informer)
    async with informer:
        await until(lambda: len(told) == 2)
    assert told == ["ADDED a@1", "DELETED a@1"]


async def test_a_handlers_bug_does_not_stop_the_picture(api: FakeApi, client: Client, pauses: Pauses) -> None:
    def buggy(_: Change[Node]) -> None:
        raise RuntimeError("bug")

    api.answer("GET", PATH, listing(5, node("a", 1)))
    api.answer("WATCH", PATH, Answer(stream=[], hang=True))
    informer = _informer(client, pauses)
    informer.on_change(buggy)
    told = _told(informer)
    async with informer:
        await informer.synced.wait()
    assert told == ["ADDED a@1"]


async def test_trim_drops_what_nobody_reads(api: FakeApi, client: Client, pauses: Pauses) -> None:
    api.answer("GET", PATH, listing(5, node("a", 1, boot_id="b")))
    api.answer("WATCH", PATH, Answer(stream=[], hang=True))
    async with Informer(client, NODES, trim=lambda full: Node(metadata=full.metadata), sleep=pauses) as informer:
        await informer.synced.wait()
        held = informer.get("a")
    assert held is not None
    assert not held.status.node_info.boot_id


@pytest.mark.parametrize("cut", [b"not json\n", b'{"type":"ADDED","object":{"kind":"Node"}}\n'])
async def test_a_watch_that_makes_no_sense_leads_to_a_new_list(
    api: FakeApi, client: Client, pauses: Pauses, cut: bytes
) -> None:
    api.answer("GET", PATH, listing(5), listing(6, node("a", 6)))
    api.answer("WATCH", PATH, Answer(stream=[cut]), Answer(stream=[], hang=True))
    informer = _informer(client, pauses)
    told = _told(informer)
    async with informer:
        await until(lambda: told == ["ADDED a@6"])
