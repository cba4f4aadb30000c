"""What the API server lets people and agents write: names that are not theirs, words of others, kinds they lack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fleetwell.api.resources import INCIDENTS, NODE_HEALTHS, POLICIES
from fleetwell.kube.client import BoundTo, Client, PatchKind
from fleetwell.kube.config import load
from fleetwell.kube.errors import Invalid
from fleetwell.kube.resource import LEASES, Raw
from fleetwell.lab import workloads
from fleetwell.lab.site import NAMESPACE
from scenarios.agent_writes import of_lease
from scenarios.field import Field

pytestmark = pytest.mark.controlplane

NODES = 1
CONTROLLER = False
AT = "2026-11-30T12:00:00Z"
WORDS = ("hold", "approve", "release", "retry")
REPLACEMENTS: Raw = {"apiGroups": ["lab.fleetwell.io"], "resources": ["machinereplacements"], "verbs": ["create"]}
ONCALL: list[Raw] = [
    {"apiGroups": ["fleetwell.io"], "resources": ["incidents"], "verbs": ["get", "patch"]},
    {"apiGroups": ["fleetwell.io"], "resources": ["remediationpolicies"], "verbs": ["create", "get", "patch"]},
]


def user(name: str) -> str:
    return f"system:serviceaccount:default:{name}"


def word(by: str) -> Raw:
    return {"by": user(by), "at": AT}


@pytest_asyncio.fixture
async def people(field: Field, tmp_path: Path) -> AsyncIterator[dict[str, Client]]:
    """Ada and Bob are on call; Ada may also order machines."""
    async with AsyncExitStack() as clients:
        found = {}
        for name, rules in (("ada", [*ONCALL, REPLACEMENTS]), ("bob", ONCALL)):
            await field.apply(*account(name, rules))
            token = await field.client.create_token(name, "default")
            found[name] = await clients.enter_async_context(client(field, tmp_path / name, token))
        yield found


def account(name: str, rules: list[Raw]) -> list[Raw]:
    rbac, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    ]


def client(field: Field, kubeconfig: Path, token: str) -> Client:
    field.lab.plane.kubeconfig_for(kubeconfig, kubeconfig.name, token=token)
    return Client(load(kubeconfig), user_agent="scenario")


@pytest_asyncio.fixture
async def incident(field: Field) -> AsyncIterator[str]:
    spec = {"kind": "Repair", "nodeName": "gpu-1", "nodeUID": "u", "policy": "gpu"}
    await field.client.create(INCIDENTS, {"metadata": {"name": "i"}, "spec": spec})
    yield "i"
    await field.client.delete(INCIDENTS, "i")


async def say(who: Client, incident: str, **words: Any) -> None:
    await who.patch(INCIDENTS, incident, {"spec": words}, kind=PatchKind.MERGE)


@pytest.mark.parametrize("what", WORDS)
async def test_a_word_bears_the_name_of_who_says_it(people: dict[str, Client], incident: str, what: str) -> None:
    with pytest.raises(Invalid, match="must be you: system:serviceaccount:default:bob"):
        await say(people["bob"], incident, **{what: word("ada")})
    await say(people["bob"], incident, **{what: word("bob")})


@pytest.mark.parametrize("what", ["approve", "release", "retry"])
async def test_what_another_has_said_cannot_be_said_again_in_another_field(
    people: dict[str, Client], incident: str, what: str
) -> None:
    """Copied from her hold, a release would have been hers."""
    await say(people["ada"], incident, hold=word("ada"))
    with pytest.raises(Invalid, match="must be you"):
        await say(people["bob"], incident, **{what: word("ada")})
    await say(people["bob"], incident, **{what: word("bob")})  # her hold may stay beside his own word
    await say(people["bob"], incident, hold=None)


async def test_a_policys_author_must_be_allowed_to_create_what_its_template_says(
    field: Field, people: dict[str, Client]
) -> None:
    policy = workloads.policy()
    policy["metadata"]["name"] = "theirs"
    with pytest.raises(Invalid, match=r"bob may not create lab\.fleetwell\.io/v1 MachineReplacement"):
        await people["bob"].create(POLICIES, policy)
    await people["ada"].create(POLICIES, policy)
    try:
        with pytest.raises(Invalid, match="bob may not create"):
            await people["bob"].patch(POLICIES, "theirs", {"spec": {"priority": 3}}, kind=PatchKind.MERGE)
        without = {"spec": {"replacement": None}}
        await people["bob"].patch(POLICIES, "theirs", without, kind=PatchKind.MERGE)
    finally:
        await field.client.delete(POLICIES, "theirs")


@pytest.fixture
def agent(field: Field, tmp_path: Path) -> Callable[[BoundTo], Any]:
    async def bound(to: BoundTo) -> Client:
        token = await field.client.create_token("fleetwell-agent", NAMESPACE, bound_to=to)
        return client(field, tmp_path / to.name, token)

    return bound


async def test_an_agent_reports_on_its_own_node_and_not_on_another_of_its_name(
    field: Field, agent: Callable[[BoundTo], Any]
) -> None:
    node = await field.node("gpu-1")
    async with await agent(BoundTo("Node", "gpu-1", node.metadata.uid)) as its:
        for uid, taken in ((node.metadata.uid, True), ("another-uid", False), (None, False)):
            body = {"status": {"nodeUID": uid}}
            sent = its.patch(NODE_HEALTHS, "gpu-1", body, kind=PatchKind.MERGE, subresource="status")
            if taken:
                await sent
            else:
                with pytest.raises(Invalid, match="token is bound to"):
                    await sent


async def test_a_node_with_the_name_of_the_controllers_lease_gets_no_hold_of_it(
    field: Field, agent: Callable[[BoundTo], Any]
) -> None:
    name = "fleetwell-controller"
    node: Raw = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    await field.apply(node)
    await field.client.create(LEASES, {"metadata": {"name": name}, "spec": {}}, NAMESPACE)
    made = await field.node(name)
    async with await agent(BoundTo("Node", name, made.metadata.uid)) as its:
        with pytest.raises(Invalid, match="is the controller's"):
            await of_lease(name).by(its)
