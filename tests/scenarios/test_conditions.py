"""S16, S18: our conditions on a real Node, beside everybody else's.

In the field two alternating reasons moved LastTransitionTime, so that no tolerance ever ran out (EKS agent #39,
karpenter #2833), and an agent that sent the whole list of conditions put back a stale Ready of the kubelet's.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from itertools import cycle, groupby, pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from fleetwell.api.manifests import manifests
from fleetwell.api.node_health import NodeHealthSpec
from fleetwell.api.policy import Expected
from fleetwell.api.resources import NODE_HEALTHS, NodeHealth
from fleetwell.kube.client import BoundTo, Client
from fleetwell.kube.config import load
from fleetwell.kube.errors import Forbidden, Invalid
from fleetwell.kube.objects import Node, NodeCondition, ObjectMeta
from fleetwell.kube.resource import ADMISSION_POLICY_BINDINGS
from fleetwell.kube.resource import NODES as NODE_OBJECTS
from fleetwell.lab.nvml_state import RecoveryAction
from fleetwell.lab.site import NAMESPACE
from scenarios.agent_writes import ITS_OWN, NO_RIGHT, REFUSED, THERMAL, condition, orders
from scenarios.field import Field

pytestmark = pytest.mark.controlplane

NODES = 2
AGENT_ARGUMENTS = ("--nvml-interval", "500ms", "--boot-grace", "2s")

GPU = "fleetwell.io/GPUHealthy"
COUNT = "scenario.example/Count"
FLIPS = 150
GUARD = "fleetwell-agent-node-status"
AGENT = "fleetwell-agent"


async def write_conditions(client: Client, node: str, *conditions: dict[str, str]) -> Node:
    return await client.patch(NODE_OBJECTS, node, {"status": {"conditions": list(conditions)}}, subresource="status")


# S16


async def test_reasons_that_take_turns_move_neither_the_transition_time_nor_the_clock_of_the_episode(
    field: Field,
) -> None:
    tolerated = dt.timedelta(seconds=8)
    await field.policy(
        rules=[{"name": "all", "faults": ["*"], "tolerate": "8s", "drain": {"after": "1h"}}],
        budget={"maxUnavailablePercent": 100},
    )
    turns = cycle([(RecoveryAction.GPU_RESET, "Reset"), (RecoveryAction.NODE_REBOOT, "Reboot")])
    loop = asyncio.get_running_loop()
    give_up = loop.time() + 5 * tolerated.total_seconds()
    async with field.watching("gpu-1") as versions:
        for action, name in turns:
            await field.driver_asks("gpu-1", action)

            async def turned(reason: str = f"GpuRecoveryAction{name}") -> bool:
                now = await field.condition("gpu-1", "GPUHealthy")
                return (now is not None and now.reason == reason) or await field.quarantined("gpu-1")

            await field.until(f"the reason is {name}, or the tolerance has run out", turned, 10)
            if await field.quarantined("gpu-1"):
                break
            assert loop.time() < give_up, "the reasons take turns, and the tolerance never runs out"

    assert len(reasons(versions)) >= 3, "too few turns to move anything"
    assert len({it.last_transition_time for it in bad(versions)}) == 1
    incident = await field.incident("gpu-1")
    assert incident is not None
    assert incident.status is not None
    taken = incident.status.timeline.quarantined
    assert taken is not None
    waited = taken - incident.status.timeline.opened
    assert tolerated <= waited < 2 * tolerated


def bad(versions: list[Node]) -> list[NodeCondition]:
    return [it for version in versions for it in version.status.conditions if it.type == GPU and it.status == "False"]


def reasons(versions: list[Node]) -> list[str]:
    """The reasons that our condition had while it was False, one for each turn."""
    return [reason for reason, _ in groupby(it.reason for it in bad(versions))]


# What a policy expects


async def test_a_node_with_less_than_its_policy_expects_is_not_healthy_until_it_expects_no_more(field: Field) -> None:
    await field.policy(mode="DryRun", expected={"gpus": 9})

    async def gpu_health(status: str, reason: str | None = None) -> bool:
        now = await field.condition("gpu-2", "GPUHealthy")
        return now is not None and now.status == status and reason in {None, now.reason}

    await field.until("a ninth GPU is missing", lambda: gpu_health("False", "GpuMissing"), 90)
    health = await field.health("gpu-2")
    assert (health.status.expected.gpus, health.status.seen.gpus) == (9, 8)
    await field.policy(mode="DryRun", expected={})
    await field.until("eight GPUs are enough again", lambda: gpu_health("True"), 90)
    assert (await field.health("gpu-2")).spec.expected == Expected()


# S18: the agent's own way of writing


@pytest_asyncio.fixture
async def unguarded(field: Field, agent: Client) -> AsyncIterator[None]:
    """Take the admission policy away, so that only the agent itself keeps from others' conditions."""
    await field.client.delete(ADMISSION_POLICY_BINDINGS, GUARD)

    async def open_to(expected: bool) -> bool:
        try:
            await write_conditions(agent, "gpu-1", condition("scenario.example/Open", "True", "Open"))
        except Invalid:
            return not expected
        return expected

    await field.until("the admission policy is out of the way", lambda: open_to(True))
    yield
    await field.apply(*(it for it in manifests() if it["metadata"]["name"] == GUARD))
    await field.until("the admission policy is back", lambda: open_to(False))


@pytest.mark.usefixtures("unguarded")
async def test_an_agent_that_publishes_at_the_same_time_never_puts_back_what_others_wrote(field: Field) -> None:
    async with field.watching("gpu-2") as versions:
        for number in range(FLIPS):
            state = "True" if number % 2 else "False"
            # Ours is spoilt each time, so the agent has to write while the next flip is under way.
            await write_conditions(
                field.client,
                "gpu-2",
                condition(COUNT, state, f"N{number}"),
                condition("Ready", state, f"N{number}"),
                condition(THERMAL, "Unknown", "Scenario"),
            )

        async def taken_back() -> bool:
            now = await field.condition("gpu-2", "ThermalHealthy")
            return now is not None and now.status == "True"

        await field.until("the agent has taken its condition back", taken_back)

    for kind in (COUNT, "Ready"):
        numbers = [
            int(c.reason[1:])
            for version in versions
            for c in version.status.conditions
            if c.type == kind and c.reason.startswith("N")
        ]
        assert numbers[-1] == FLIPS - 1
        assert numbers == sorted(numbers), f"an old {kind} was put back"
    thermal = [c.status for version in versions for c in version.status.conditions if c.type == THERMAL]
    taken = sum(1 for before, now in pairwise(thermal) if (before, now) == ("Unknown", "True"))
    assert taken >= 10, f"the agent wrote only {taken} times meanwhile: too seldom to collide"


# S18: what the API server lets an agent's token write


@pytest_asyncio.fixture
async def agent(field: Field, tmp_path: Path) -> AsyncIterator[Client]:
    """A client with the token of the agent on gpu-1."""
    [pod] = [
        pod
        for pod in await field.pods(NAMESPACE, f"app.kubernetes.io/name={AGENT}")
        if pod.spec.node_name == "gpu-1" and pod.metadata.deletion_timestamp is None
    ]
    bound = BoundTo("Pod", pod.metadata.name, pod.metadata.uid)
    async with await client_of_agent(field, tmp_path / "agent", bound) as client:
        yield client


async def client_of_agent(field: Field, kubeconfig: Path, bound_to: BoundTo | None) -> Client:
    token = await field.client.create_token(AGENT, NAMESPACE, bound_to=bound_to)
    field.lab.plane.kubeconfig_for(kubeconfig, AGENT, token=token)
    return Client(load(kubeconfig), user_agent="scenario-agent")


@pytest_asyncio.fixture
async def ordered(field: Field) -> None:
    uids = {node: (await field.node(node)).metadata.uid for node in ("gpu-1", "gpu-2")}
    await field.apply(*orders(uids))


@pytest.mark.usefixtures("ordered")
@pytest.mark.parametrize("what", ITS_OWN)
async def test_an_agents_token_writes_what_is_its_own(agent: Client, what: str) -> None:
    await ITS_OWN[what].by(agent)


@pytest.mark.usefixtures("ordered")
@pytest.mark.parametrize("what", REFUSED)
async def test_the_admission_policy_keeps_an_agents_token_from(agent: Client, what: str) -> None:
    with pytest.raises(Invalid, match="ValidatingAdmissionPolicy 'fleetwell-agent"):
        await REFUSED[what].by(agent)


@pytest.mark.usefixtures("ordered")
@pytest.mark.parametrize("what", NO_RIGHT)
async def test_an_agents_token_has_no_right_to(agent: Client, what: str) -> None:
    with pytest.raises(Forbidden):
        await NO_RIGHT[what].by(agent)


@pytest.mark.parametrize(
    ("spec", "who"),
    [
        (NodeHealthSpec(operation="x"), "is written by the controller"),
        (NodeHealthSpec(expected=Expected(gpus=1)), "said by its policy"),
    ],
)
async def test_an_agent_that_makes_its_node_health_gives_itself_no_orders(
    agent: Client, spec: NodeHealthSpec, who: str
) -> None:
    with pytest.raises(Invalid, match=who):
        await agent.create(NODE_HEALTHS, NodeHealth(metadata=ObjectMeta(name="gpu-1"), spec=spec))


@pytest.mark.usefixtures("ordered")
@pytest.mark.parametrize("what", ITS_OWN)
async def test_a_token_that_is_bound_to_no_node_writes_nothing(field: Field, tmp_path: Path, what: str) -> None:
    async with await client_of_agent(field, tmp_path / "loose", None) as loose:
        with pytest.raises(Invalid, match="bound to"):
            await ITS_OWN[what].by(loose)
