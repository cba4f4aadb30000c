"""S36: the GPU stack must live under quarantine.

A DaemonSet pod without a toleration is not made again under a custom NoSchedule taint (piraeus-operator PR #1009;
gpu-operator #2717), so a node repaired under one would come back without its device plugin.
"""

from __future__ import annotations

import copy
from functools import partial

import pytest

from fleetwell.api.incident import Phase
from fleetwell.api.resources import POLICIES
from fleetwell.kube.objects import Pod
from fleetwell.kube.resource import PODS, Raw
from fleetwell.lab import workloads
from fleetwell.lab.site import DEVICE_RESOURCE
from scenarios.field import QUARANTINE, Field

pytestmark = pytest.mark.controlplane

NODES = 2
CONTROLLER = False
AGENT_ARGUMENTS = ("--nvml-interval", "1s", "--boot-grace", "2s")
PLUGIN = "app.kubernetes.io/name=nvidia-device-plugin"
CHORES = 35.0
"""Seconds within which the controller has looked at the DaemonSets again."""
TO_SET = {"key": QUARANTINE, "operator": "Exists", "effect": "NoSchedule"}


def device_plugin(*tolerations: Raw) -> Raw:
    """The device plugin's DaemonSet with these tolerations alone."""
    plugin = copy.deepcopy(workloads.device_plugin())
    plugin["spec"]["template"]["spec"]["tolerations"] = list(tolerations)
    return plugin


async def roll_out(field: Field, plugin: Raw) -> None:
    """Apply it, and wait until each node runs it in its new form."""
    await field.apply(plugin)
    wanted = plugin["spec"]["template"]["spec"]["tolerations"]

    async def everywhere() -> bool:
        pods = [pod for pod in await field.pods("kube-system", PLUGIN) if pod.metadata.deletion_timestamp is None]
        keys = {one["key"] for one in wanted}
        new = [pod for pod in pods if keys == {it.key for it in pod.spec.tolerations if it.key.startswith("fleetwell")}]
        tolerant = [pod for pod in new if not any(it.key == "" for it in pod.spec.tolerations)]
        return len(tolerant) == NODES and all(pod.status.phase == "Running" for pod in tolerant)

    await field.until("the device plugin is rolled out", everywhere)
    for number in range(1, NODES + 1):
        await field.until(f"gpu-{number} offers its GPUs", partial(offers, field, f"gpu-{number}"))


async def offers(field: Field, node: str, gpus: str = "8") -> bool:
    return (await field.node(node)).status.allocatable.get(DEVICE_RESOURCE) == gpus


async def plugin_on(field: Field, node: str) -> Pod | None:
    pods = await field.pods("kube-system", PLUGIN)
    return next((it for it in pods if it.spec.node_name == node and it.metadata.deletion_timestamp is None), None)


async def in_phase(field: Field, node: str, phase: Phase) -> bool:
    return await field.phase(node) is phase


async def said(field: Field) -> str:
    return (await field.client.get(POLICIES, "training")).status.problem


async def repaired_with_the_plugin_made_anew(field: Field, node: str, *, by_taint: bool) -> None:
    """Quarantine, have the plugin's pod made anew (as its operator does around a reset), reboot, release."""
    async with field.watching(node) as versions:
        await field.inject("gpu-lost", node, 2)

        async def marked() -> bool:
            found = await field.node(node)
            return found.spec.unschedulable or any(taint.key == QUARANTINE for taint in found.spec.taints)

        await field.until("quarantined", marked)
        old = await plugin_on(field, node)
        assert old is not None
        await field.client.delete(PODS, old.metadata.name, "kube-system", uid=old.metadata.uid)

        await field.until("released", partial(in_phase, field, node, Phase.RELEASED), 60.0)

        async def unmarked() -> bool:
            return not await marked()

        await field.until("given back", unmarked)
    new = await plugin_on(field, node)
    assert new is not None
    assert new.metadata.uid != old.metadata.uid
    assert new.status.phase == "Running"
    assert await offers(field, node)
    assert any(taint.key == QUARANTINE for it in versions for taint in it.spec.taints) is by_taint
    assert any(it.spec.unschedulable for it in versions) is not by_taint
    assert len({it.status.node_info.boot_id for it in versions}) == 2


async def test_s36_a_daemonset_that_cannot_live_under_our_taint_is_named_and_its_pool_cordoned(field: Field) -> None:
    await roll_out(field, device_plugin())
    rule = {
        "name": "all",
        "faults": ["*"],
        "drain": {"after": "3s", "deadline": "1m"},
        "ladder": [{"remedy": "reboot", "deadline": "1m"}],
    }
    await field.policy(
        rules=[rule], budget={"maxUnavailablePercent": 100}, release={"quiet": "1s", "settleDeadline": "1m"}
    )
    await field.start_controller()
    problem = await field.until("the policy names the DaemonSet", partial(said, field))
    assert "kube-system/nvidia-device-plugin" in problem
    assert "fleetwell/fleetwell-agent" not in problem
    for part in ("fleetwell.io/quarantine", "Exists", "NoSchedule"):
        assert part in problem, "it does not say what to set"
    await repaired_with_the_plugin_made_anew(field, "gpu-1", by_taint=False)

    await roll_out(field, device_plugin(TO_SET))

    async def settled() -> bool:
        return await said(field) == ""

    await field.until("the policy has no problem any more", settled, CHORES)
    await repaired_with_the_plugin_made_anew(field, "gpu-2", by_taint=True)
