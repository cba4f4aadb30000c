"""S2: a controller that comes back acts on what is true now, never on what an earlier boot or an earlier life said.

In the field a cold start replayed an old event and restarted a healthy node (NVSentinel #1280, #1281, #1347, #1415).
The stimuli are real: agents taken away, machines restarted, controllers killed without a word.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import msgspec
import pytest

from fleetwell.api.incident import AttemptResult, Phase
from fleetwell.api.node_operation import OperationKind
from fleetwell.api.resources import NODE_OPERATIONS, NodeOperation
from fleetwell.control.main import LEASE
from fleetwell.kube.client import PatchKind
from fleetwell.kube.errors import Invalid, NotFound
from fleetwell.kube.resource import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, LEASES, Raw
from fleetwell.lab import workloads
from fleetwell.lab.site import NAMESPACE
from scenarios.field import Field

pytestmark = pytest.mark.controlplane

NODES = 3
CONTROLLER = False
AGENT_ARGUMENTS = ("--nvml-interval", "1s", "--boot-grace", "2s")

REFUSED = "scenario-no-reboots"


async def start_successor(field: Field) -> None:
    """Start the next controller as if the killed one's lease had just run out; that it has to is S27's matter."""
    spec = {"spec": {"holderIdentity": ""}}
    with contextlib.suppress(NotFound):  # the first controller of this lab
        await field.client.patch(LEASES, LEASE, spec, kind=PatchKind.MERGE, namespace=NAMESPACE)
    await field.start_controller()


async def policy(field: Field, *, tolerate: str, deadline: str = "2m") -> None:
    """Everything asks for a reboot; budget and pace never hide a wrong wish."""
    rule = {
        "name": "reboot",
        "faults": ["*"],
        "tolerate": tolerate,
        "drain": {"deadline": "1m"},
        "ladder": [{"remedy": "reboot", "deadline": deadline}],
    }
    await field.policy(
        rules=[rule],
        budget={"maxUnavailablePercent": 100},
        pace={"maxConcurrent": 3},
        release={"quiet": "1s", "settleDeadline": "1m"},
    )


def agents(field: Field, *, anywhere: bool) -> Raw:
    """The agents' DaemonSet, that finds its nodes or none."""
    daemons = workloads.agent(field.lab.site, AGENT_ARGUMENTS)
    if not anywhere:
        daemons["spec"]["template"]["spec"]["nodeSelector"] = {"scenario": "nowhere"}
    return daemons


async def running_agents(field: Field) -> int:
    return len(await field.pods(NAMESPACE, "app.kubernetes.io/name=fleetwell-agent"))


async def boot_id(field: Field, node: str) -> str:
    return (await field.node(node)).status.node_info.boot_id


async def says(field: Field, node: str, fault: str) -> bool:
    return any(finding.fault == fault for finding in (await field.health(node)).status.findings)


async def reboots(field: Field, node: str) -> list[NodeOperation]:
    return [op for op in await field.operations(node) if op.spec.kind is OperationKind.REBOOT]


async def phase_is(field: Field, node: str, *phases: Phase) -> bool:
    return await field.phase(node) in phases


async def test_an_event_of_an_earlier_boot_that_is_still_listed_is_no_ground_for_anything(field: Field) -> None:
    await policy(field, tolerate="0s")
    for node in ("gpu-1", "gpu-2"):
        await field.inject("gpu-lost", node, 0)
        await field.until(f"{node} reports it", partial(says, field, node, "GpuFallenOffBus"))
    await field.apply(agents(field, anywhere=False))

    async def no_agents() -> bool:
        return await running_agents(field) == 0

    await field.until("no agent is left to take an old finding back", no_agents)
    booted: str = await field.ask("reboot", node="gpu-1")

    async def restarted() -> bool:
        return await boot_id(field, "gpu-1") == booted

    await field.until("gpu-1 runs another boot", restarted)
    assert all(finding.boot_id != booted for finding in (await field.health("gpu-1")).status.findings)
    assert await says(field, "gpu-1", "GpuFallenOffBus")

    await field.start_controller()
    # gpu-2 was not restarted, so what is said of it is true; by the time its reboot is ordered gpu-1 had its turn.
    await field.until("a reboot of gpu-2 is ordered", lambda: reboots(field, "gpu-2"))
    assert await field.incidents("gpu-1") == []
    assert not await field.quarantined("gpu-1")

    await field.apply(agents(field, anywhere=True))
    await field.until("gpu-2 is back in service", lambda: phase_is(field, "gpu-2", Phase.RELEASED), 60)
    assert not await says(field, "gpu-1", "GpuFallenOffBus")
    assert await field.incidents("gpu-1") == []
    assert await boot_id(field, "gpu-1") == booted


async def test_a_controller_killed_at_every_stage_orders_one_reboot_of_the_bad_node_and_none_of_another(
    field: Field,
) -> None:
    await field.kill_controller()
    await policy(field, tolerate="3s")
    others = {node: await boot_id(field, node) for node in ("gpu-1", "gpu-2")}
    bad_boot = await boot_id(field, "gpu-3")
    await field.run_pod("slow-to-end", node="gpu-3", script="trap 'sleep 4; exit 0' TERM; sleep 3600 & wait", grace=30)
    await field.until("the pod runs", lambda: field.running("slow-to-end"))
    await start_successor(field)
    async with field.watching("gpu-3") as versions:
        await field.inject("gpu-lost", "gpu-3", 0)

        async def ordered() -> bool:
            return bool(await reboots(field, "gpu-3"))

        stages: list[tuple[str, Any]] = [
            ("it is tolerated", lambda: phase_is(field, "gpu-3", Phase.TOLERATING)),
            ("it is drained", lambda: phase_is(field, "gpu-3", Phase.DRAINING)),
            ("its reboot is ordered", ordered),
            ("it is proven", lambda: phase_is(field, "gpu-3", Phase.PROVING)),
        ]
        for what, reached in stages:
            await field.until(what, reached, 40)
            await field.kill_controller()
            await start_successor(field)
        await field.until("gpu-3 is released", lambda: phase_is(field, "gpu-3", Phase.RELEASED), 60)
        new_boot = await boot_id(field, "gpu-3")
        boots = {version.status.node_info.boot_id for version in versions}

    assert boots == {bad_boot, new_boot}
    assert len(await reboots(field, "gpu-3")) == 1
    [incident] = await field.incidents("gpu-3")
    assert incident.status is not None
    assert [attempt.result for attempt in incident.status.attempts] == [AttemptResult.SUCCEEDED]
    assert {node: await boot_id(field, node) for node in others} == others


async def test_a_reboot_that_was_only_written_down_is_not_made_once_the_node_has_restarted(field: Field) -> None:
    await field.kill_controller()
    await policy(field, tolerate="0s", deadline="8s")
    before = len(await reboots(field, "gpu-2"))
    await refuse_reboots(field)
    await start_successor(field)
    await field.inject("gpu-lost", "gpu-2", 1)

    async def intended() -> bool:
        incident = await field.incident("gpu-2")
        if incident is None or incident.status is None or incident.status.phase.ended:
            return False
        return bool(incident.status.attempts)

    await field.until("the attempt is written down", intended)
    await field.kill_controller()
    booted: str = await field.ask("reboot", node="gpu-2")
    await field.client.delete(ADMISSION_POLICY_BINDINGS, REFUSED)
    await field.client.delete(ADMISSION_POLICIES, REFUSED)
    await field.until("orders pass again", lambda: orders_pass(field))

    await start_successor(field)
    await field.until("gpu-2 is released", lambda: phase_is(field, "gpu-2", Phase.RELEASED), 60)
    assert await boot_id(field, "gpu-2") == booted
    assert len(await reboots(field, "gpu-2")) == before


async def refuse_reboots(field: Field) -> None:
    """Let nobody create a reboot: what the controller then dies with is an attempt that is only written down."""
    api, spec_of = "admissionregistration.k8s.io/v1", {"apiGroups": ["fleetwell.io"], "apiVersions": ["*"]}
    rule = {**spec_of, "operations": ["CREATE"], "resources": ["nodeoperations"]}
    await field.apply(
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": REFUSED},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "object.spec.kind != 'Reboot'", "message": "not in this scenario"}],
            },
        },
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": REFUSED},
            "spec": {"policyName": REFUSED, "validationActions": ["Deny"]},
        },
    )

    async def refused() -> bool:
        return not await orders_pass(field)

    await field.until("reboots are refused", refused)


async def orders_pass(field: Field) -> bool:
    """Whether the API server would take the order of a reboot now; nothing is created."""
    order = {
        "apiVersion": NODE_OPERATIONS.api_version,
        "kind": NODE_OPERATIONS.kind,
        "metadata": {"name": "asked-only"},
        "spec": {
            "kind": OperationKind.REBOOT.value,
            "nodeName": "nowhere",
            "nodeUID": "none",
            "incident": "none",
            "operationID": "none",
            "expectedBootID": "none",
            "deadline": "2100-01-01T00:00:00Z",
        },
    }
    try:
        await field.client.raw(
            "POST", NODE_OPERATIONS.path(None), params={"dryRun": "All"}, body=msgspec.json.encode(order)
        )
    except Invalid:
        return False
    return True
