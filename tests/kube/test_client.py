"""Typed requests: what goes over the wire, and what comes back."""

from __future__ import annotations

import asyncio

import pytest

from fleetwell.kube.client import BoundTo, Client, PatchKind
from fleetwell.kube.errors import Conflict, Expired, NotFound, ServerError, TooManyRequests, Undecodable
from fleetwell.kube.objects import Lease, LeaseSpec, Node, ObjectMeta
from fleetwell.kube.resource import LEASES, NODES, PODS, Raw, Resource
from kube.fake_api import Answer, FakeApi, listing, node, status, until

REPORTS: Resource[Raw] = Resource("example.test", "v1", "reports", "Report", True, dict, status=True)


async def test_an_object_is_decoded_and_unknown_fields_are_ignored(api: FakeApi, client: Client) -> None:
    api.answer("GET", "/api/v1/nodes/n1", Answer(body=node("n1", 7, boot_id="b")))
    found = await client.get(NODES, "n1")
    assert (found.metadata.name, found.metadata.resource_version, found.status.node_info.boot_id) == ("n1", "7", "b")


async def test_a_list_follows_its_pages(api: FakeApi, client: Client) -> None:
    api.answer("GET", "/api/v1/nodes", listing(5, node("a", 1), next_page="more"), listing(5, node("b", 2)))
    found = await client.list(NODES, label_selector="gpu=yes", field_selector="spec.unschedulable=false")
    assert [item.metadata.name for item in found.items] == ["a", "b"]
    assert found.resource_version == "5"
    first, second = (seen.query for seen in api.seen)
    assert first == {"labelSelector": "gpu=yes", "fieldSelector": "spec.unschedulable=false", "limit": "500"}
    assert second["continue"] == "more"


async def test_a_list_whose_snapshot_expired_between_pages_begins_again(api: FakeApi, client: Client) -> None:
    gone = status(410, "Expired", "The provided continue parameter is too old")
    api.answer("GET", "/api/v1/nodes", listing(5, node("a", 1), next_page="more"), gone, listing(9, node("a", 8)))
    found = await client.list(NODES)
    assert [item.metadata.resource_version for item in found.items] == ["8"]
    assert found.resource_version == "9"


async def test_a_list_that_expires_twice_is_an_error(api: FakeApi, client: Client) -> None:
    api.answer("GET", "/api/v1/nodes", status(410, "Expired", "too old"))
    with pytest.raises(Expired):
        await client.list(NODES)


async def test_an_object_that_cannot_be_read_fails_the_list_instead_of_missing_from_it(
    api: FakeApi, client: Client
) -> None:
    api.answer("GET", "/api/v1/nodes", listing(5, node("a", 1), {"metadata": {"name": 3}}))
    with pytest.raises(Undecodable, match="LIST nodes"):
        await client.list(NODES)


async def test_a_mutating_request_tells_the_server_when_to_give_up(api: FakeApi, client: Client) -> None:
    api.answer("PATCH", "/api/v1/nodes/n1/status", Answer(body=node("n1", 2)))
    await client.patch(NODES, "n1", {"status": {}}, subresource="status", timeout=1.5)
    (seen,) = api.seen
    assert seen.query == {"timeout": "1500ms"}
    assert seen.headers["Content-Type"] == PatchKind.STRATEGIC.value
    assert seen.headers["User-Agent"] == "fleetwell-test/1"


async def test_server_side_apply_names_its_kind_and_manager(api: FakeApi, client: Client) -> None:
    api.answer("PATCH", "/apis/example.test/v1/namespaces/x/reports/r", Answer(body={}))
    await client.patch(
        REPORTS, "r", {"spec": {}}, kind=PatchKind.APPLY, namespace="x", field_manager="fleetwell", force=True
    )
    (seen,) = api.seen
    assert seen.body == {"apiVersion": "example.test/v1", "kind": "Report", "spec": {}}
    assert (seen.query["fieldManager"], seen.query["force"]) == ("fleetwell", "true")


async def test_a_custom_resource_refuses_a_strategic_patch_before_sending(api: FakeApi, client: Client) -> None:
    with pytest.raises(ValueError, match="strategic"):
        await client.patch(REPORTS, "r", {}, namespace="x")
    assert api.seen == []


async def test_a_struct_that_holds_part_of_an_object_cannot_replace_it(api: FakeApi, client: Client) -> None:
    with pytest.raises(TypeError, match="patch it"):
        await client.replace(NODES, Node(metadata=ObjectMeta(name="n1")))
    assert api.seen == []


async def test_created_objects_carry_their_api_version_and_kind(api: FakeApi, client: Client) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/x/leases"
    api.answer("POST", path, Answer(201, {"metadata": {"name": "l", "resourceVersion": "1"}}))
    made = Lease(metadata=ObjectMeta(name="l", namespace="x"), spec=LeaseSpec(holder_identity="me"))
    created = await client.create(LEASES, made, "x")
    assert created.metadata.resource_version == "1"
    assert api.seen[0].body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "x"},
        "spec": {"holderIdentity": "me"},
    }


async def test_deletes_carry_their_preconditions(api: FakeApi, client: Client) -> None:
    api.answer("DELETE", "/api/v1/namespaces/x/pods/p", Answer(body={}))
    await client.delete(PODS, "p", "x", uid="u", resource_version="9", grace_period_seconds=30)
    assert api.seen[0].body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "9"},
        "gracePeriodSeconds": 30,
    }


async def test_an_eviction_names_the_pod_by_uid(api: FakeApi, client: Client) -> None:
    api.answer("POST", "/api/v1/namespaces/x/pods/p/eviction", Answer(201, {}))
    await client.evict("p", "x", uid="u", dry_run=True)
    (seen,) = api.seen
    assert seen.query["dryRun"] == "All"
    assert seen.body["deleteOptions"] == {"preconditions": {"uid": "u"}, "dryRun": ["All"]}


async def test_the_three_ways_in_which_an_eviction_fails_are_told_apart(api: FakeApi, client: Client) -> None:
    path = "/api/v1/namespaces/x/pods/p/eviction"
    budget = [{"reason": "DisruptionBudget", "message": "needs 2 healthy pods"}]
    api.answer(
        "POST",
        path,
        status(429, "TooManyRequests", "Cannot evict pod", causes=budget, retryAfterSeconds=10),
        status(500, "InternalError", "This pod has more than one PodDisruptionBudget, which is not supported."),
        Answer(429, b"Too many requests, please try again later.", {"Retry-After": "600"}),
    )
    with pytest.raises(TooManyRequests) as refused:
        await client.evict("p", "x", uid="u")
    assert refused.value.disruption_budget
    assert refused.value.retry_after == 10
    with pytest.raises(ServerError) as two:
        await client.evict("p", "x", uid="u")
    assert two.value.multiple_budgets
    with pytest.raises(TooManyRequests) as busy:
        await client.evict("p", "x", uid="u")
    assert not busy.value.disruption_budget
    assert "please try again later" in str(busy.value)


async def test_a_token_ends_with_the_object_it_is_bound_to(api: FakeApi, client: Client) -> None:
    api.answer("POST", "/api/v1/namespaces/x/serviceaccounts/agent/token", Answer(201, {"status": {"token": "t"}}))
    bound = BoundTo("Node", "n1", "u1")
    assert await client.create_token("agent", "x", bound_to=bound, audiences=["api"], expiration_seconds=600) == "t"
    assert api.seen[0].body["spec"] == {
        "audiences": ["api"],
        "expirationSeconds": 600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"},
    }


async def test_errors_name_the_request_and_the_object(api: FakeApi, client: Client) -> None:
    api.answer("GET", "/api/v1/nodes/n1", status(404, "NotFound", 'nodes "n1" not found'))
    with pytest.raises(NotFound, match="GET Node n1: 404 NotFound"):
        await client.get(NODES, "n1")
    api.answer("DELETE", "/api/v1/namespaces/x/pods/p", status(409, "Conflict", "UID in precondition: u"))
    with pytest.raises(Conflict, match="DELETE Pod x/p"):
        await client.delete(PODS, "p", "x", uid="u")


async def test_requests_share_a_bounded_number_of_connections(api: FakeApi) -> None:
    api.answer("GET", "/api/v1/nodes/n1", Answer(hang=True))
    async with Client(api.config, user_agent="t", connections=3, timeout=0.2, patience=0) as client:
        asking = [asyncio.create_task(client.get(NODES, "n1")) for _ in range(9)]
        await until(lambda: len(api.seen) == 3)
        await asyncio.sleep(0.05)
        assert len(api.seen) == 3
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_raw_sends_what_it_is_given(api: FakeApi, client: Client) -> None:
    api.answer("GET", "/version", Answer(body={"minor": "37"}))
    assert b"37" in await client.raw("GET", "/version")
