"""S40 and the network's own faults: from an adapter of a machine to the condition of its Node.

In the field collectives went on at a fraction of their bandwidth while all looked healthy, an interface counted what
its peer did wrong, and nodes that were launched with fewer interfaces than their type can have were called broken
(karpenter #2440, karpenter-provider-aws #6296).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleetwell.api.node_health import NodeFinding
from fleetwell.kube.resource import NODES as NODE_OBJECTS
from fleetwell.lab.hardware import Hardware
from scenarios.field import Field

pytestmark = pytest.mark.controlplane

NODES = 1
CONTROLLER = False
MACHINE = "p6-b200.48xlarge"
"""Eight EFA interfaces of 400 Gb/s with counters of their peers, and two InfiniBand adapters for its NVSwitches."""
AGENT_ARGUMENTS = ("--sysfs-interval", "6s", "--nvml-interval", "1s", "--boot-grace", "2s")
PATIENCE = 90.0
NODE = "gpu-1"


async def finding(field: Field, fault: str, component: str) -> NodeFinding:
    """Wait until the NodeHealth shows it: the condition may be written before."""

    async def shown() -> NodeFinding | None:
        found = (await field.health(NODE)).status.findings
        return next((one for one in found if (one.fault, one.component) == (fault, component)), None)

    told = await field.until(f"{fault} on {component} is shown", shown, PATIENCE)
    assert told is not None
    return told


async def network_is(field: Field, status: str, reason: str | None = None) -> bool:
    now = await field.condition(NODE, "NetworkHealthy")
    return now is not None and now.status == status and reason in {None, now.reason}


async def change(field: Field, missing: set[str]) -> None:
    def take() -> None:
        with Hardware(field.lab.site.node(NODE).host).update() as state:
            state.missing_nics = missing

    await asyncio.to_thread(take)


async def annotate(field: Field, **annotations: str | None) -> None:
    named: dict[str, Any] = {f"fleetwell.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    await field.client.patch(NODE_OBJECTS, NODE, {"metadata": {"annotations": named}})


@pytest.mark.parametrize("what", ["rate", "pcie"])
async def test_an_interface_that_is_up_and_slow_turns_the_condition_until_it_is_mended(field: Field, what: str) -> None:
    await field.until("the network is well", lambda: network_is(field, "True"), PATIENCE)
    await field.inject("nic-degraded", NODE, nic="rdmap79s0", what=what)
    await field.until("it is told", lambda: network_is(field, "False", "NicDegraded"), PATIENCE)
    told = await finding(field, "NicDegraded", "nic/rdmap79s0")
    assert (told.verdict, told.recovery) == ("BAD", "reboot")
    assert "an equal adapter beside it has" in told.evidence[0]
    await field.inject("clear", NODE)
    await field.until("the network is well again", lambda: network_is(field, "True"), PATIENCE)


async def test_what_blames_a_peer_is_shown_and_turns_nothing(field: Field) -> None:
    await field.until("the network is well", lambda: network_is(field, "True"), PATIENCE)
    await field.inject("nic-errors", NODE, nic="rdmap96s0", counter="unresponsive_remote_events", by=90_000)
    told = await finding(field, "EfaPeerUnresponsive", "nic/rdmap96s0")
    assert (told.verdict, told.recovery) == ("CONFIG", "none")
    assert await network_is(field, "True")
    await field.inject("clear", NODE)


async def test_one_interface_fewer_than_requested_is_missing_and_as_many_as_requested_are_none(field: Field) -> None:
    await field.until("the network is well", lambda: network_is(field, "True"), PATIENCE)
    await annotate(field, requested_efa="7")
    await change(field, {"rdmap79s0"})

    async def are_seen(count: int) -> bool:
        return (await field.health(NODE)).status.seen.nics == count

    await field.until("seven and two of another kind are seen", lambda: are_seen(9), PATIENCE)
    assert await network_is(field, "True")
    await change(field, {"rdmap79s0", "rdmap96s0"})
    await field.until("one is missed", lambda: network_is(field, "False", "EfaMissing"), PATIENCE)
    assert "6 EFA interfaces of the 7" in (await finding(field, "EfaMissing", "host")).evidence[0]
    await change(field, set())
    await annotate(field, requested_efa=None)
    await field.until("the network is well again", lambda: network_is(field, "True"), PATIENCE)
