"""S11 and S23: what is not ours. A pod's processes end in their own time, and a person has the last word on a node.

In the field a grace period of 0 removed the pod's object while its container still ran (Karpenter #3032), a person's
uncordon was fought, and a cordon of one's own forgotten (draino #17, kured #63).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from fleetwell.api.incident import Phase
from fleetwell.api.resources import Incident
from fleetwell.kube.client import PatchKind
from fleetwell.kube.resource import NODES as NODE
from fleetwell.kube.resource import Raw
from scenarios import audit
from scenarios.field import QUARANTINE, Field
from scenarios.pod_life import IGNORES_SIGTERM, following

pytestmark = pytest.mark.controlplane

NODES = 4
AUDIT = True
AGENT_ARGUMENTS = ("--nvml-interval", "1s", "--boot-grace", "2s")
LOOKS = 2.0
"""Seconds in which agents look twice, and the controller decides each time: what has not come by then stays away."""


async def policy(field: Field, **drain: Any) -> None:
    """Everything is restarted; budget and pace never stand in the way."""
    rule = {"name": "all", "faults": ["*"], "drain": drain, "ladder": [{"remedy": "reboot", "deadline": "1m"}]}
    await field.policy(
        rules=[rule],
        budget={"maxUnavailablePercent": 100},
        pace={"maxConcurrent": NODES},
        release={"quiet": "1s", "settleDeadline": "1m"},
    )


async def in_phase(field: Field, node: str, *phases: Phase) -> bool:
    return await field.phase(node) in phases


async def edit(field: Field, node: str, manager: str, **spec: Any) -> None:
    """Write a Node's spec as another client does: kubectl's patches replace the whole list of taints, too."""
    body: Raw = {"spec": spec}
    await field.client.patch(NODE, node, body, kind=PatchKind.MERGE, field_manager=manager)


async def test_s11_a_pod_keeps_its_object_until_its_process_is_really_gone(field: Field) -> None:
    """Three pods ignore SIGTERM; the last of them outlasts the drain's deadline and dies with the machine."""
    await policy(field, deadline="5s", onDeadline="Proceed")
    for name, grace in (("abrupt", 0), ("patient", 2), ("stubborn", 60)):
        await field.run_pod(name, node="gpu-1", script=IGNORES_SIGTERM, grace=grace)
    async with (
        following(field, "abrupt") as abrupt,
        following(field, "patient") as patient,
        following(field, "stubborn") as stubborn,
    ):
        lives = (abrupt, patient, stubborn)
        await field.inject("gpu-lost", "gpu-1", 3)

        await field.until("the drain is over", partial(in_phase, field, "gpu-1", Phase.REMEDYING))
        assert abrupt.over
        assert patient.over
        assert stubborn.object_gone is None, "its object went although only the deadline of the drain had come"
        assert "1 pods remain at the drain's deadline" in await field.story()

        async def all_gone() -> bool:
            return all(life.over for life in lives)

        await field.until("the last pod has gone with the restart", all_gone)
    assert [life.name for life in lives if not life.outlived] == []
    assert [life.name for life in lives if life.hurried] == []

    ours = [it for it in audit.ends_of_pods(field.lab.plane.audit_log) if it.user.username == audit.CONTROLLER]
    assert {it.about.name for it in ours} == {"abrupt", "patient", "stubborn"}
    assert [str(it) for it in ours if it.about.subresource != "eviction"] == []
    assert [str(it) for it in ours if audit.grace_of(it) == 0] == []
    await field.until("released", partial(in_phase, field, "gpu-1", Phase.RELEASED))


async def test_s23_an_administrators_cordon_is_neither_made_nor_removed(field: Field) -> None:
    """One node is cordoned before its repair, one during it, and one never: all stay as their owner left them."""
    await policy(field, after="3s", deadline="1m")
    await edit(field, "gpu-2", "kubectl-cordon", unschedulable=True)
    async with field.watching("gpu-2") as before, field.watching("gpu-3") as during, field.watching("gpu-4") as never:
        for name in ("gpu-2", "gpu-3", "gpu-4"):
            await field.inject("gpu-lost", name, 1)
        await field.until("gpu-3 is quarantined", partial(field.quarantined, "gpu-3"))
        await edit(field, "gpu-3", "kubectl-cordon", unschedulable=True)
        for name in ("gpu-2", "gpu-3", "gpu-4"):
            await field.until(f"{name} is released", partial(in_phase, field, name, Phase.RELEASED), 60.0)

            async def unmarked(name: str = name) -> bool:
                return not await field.quarantined(name)

            await field.until(f"{name} has lost our taint", unmarked)
        seen = {"gpu-2": before, "gpu-3": during, "gpu-4": never}
        for name, versions in seen.items():
            assert any(taint.key == QUARANTINE for node in versions for taint in node.spec.taints), name
        cordons = {name: [node.spec.unschedulable for node in versions] for name, versions in seen.items()}
    assert all(cordons["gpu-2"]), "an administrator's cordon was removed"
    assert cordons["gpu-3"] == sorted(cordons["gpu-3"]), "a cordon made during the repair was removed"
    assert cordons["gpu-3"][-1]
    assert not any(cordons["gpu-4"]), "we made a cordon"
    for name in ("gpu-2", "gpu-3"):
        await edit(field, name, "kubectl-cordon", unschedulable=None)


async def seen_quarantined(field: Field, node: str, incidents: int) -> Incident | None:
    """The node's latest incident, once it is the n-th and its mark has been seen on the node."""
    found = await field.incidents(node)
    if len(found) != incidents or found[-1].status is None or found[-1].status.quarantine is None:
        return None
    return found[-1] if found[-1].status.quarantine.seen and await field.quarantined(node) else None


async def test_s23_removing_our_taint_by_hand_is_a_veto_until_the_evidence_changes(field: Field) -> None:
    await policy(field, after="10m")
    node, before = "gpu-2", len(await field.incidents("gpu-2"))
    evidence = {
        "the first fault": partial(field.inject, "ecc-dbe", node, 0),
        "a new component": partial(field.inject, "ecc-dbe", node, 1),
        "a stronger recovery": partial(field.inject, "row-remap-failed", node, 0),
        "a new boot": partial(field.ask, "reboot", node=node),
    }
    for number, (what, happens) in enumerate(evidence.items(), start=before + 1):
        await happens()
        await field.until(f"quarantined for {what}", partial(seen_quarantined, field, node, number))
        await edit(field, node, "kubectl-taint", taints=None)  # as `kubectl taint` does when it takes the last one
        await field.until(f"vetoed after {what}", partial(in_phase, field, node, Phase.VETOED), 10.0)
        async with field.watching(node) as versions:
            await asyncio.sleep(LOOKS)
        assert not any(taint.key == QUARANTINE for it in versions for taint in it.spec.taints), f"fought after {what}"
        assert len(await field.incidents(node)) == number


async def test_s23_a_taint_taken_by_a_controller_is_put_back_once(field: Field) -> None:
    """It replaces the whole list of taints with its own, as a merge patch of a stale copy does."""
    await policy(field, after="10m")
    node, before = "gpu-3", len(await field.incidents("gpu-3"))
    theirs = {"key": "feature.example.com/burn-in", "effect": "PreferNoSchedule"}
    await field.inject("ecc-dbe", node, 0)
    await field.until("quarantined", partial(seen_quarantined, field, node, before + 1))

    await edit(field, node, "node-feature-controller", taints=[theirs])

    async def put_back() -> bool:
        incident = await field.incident(node)
        mark = incident.status.quarantine if incident is not None and incident.status is not None else None
        return mark is not None and mark.put_back == 1 and mark.seen and await field.quarantined(node)

    await field.until("put back once", put_back, 10.0)
    assert theirs["key"] in [taint.key for taint in (await field.node(node)).spec.taints], "their taint was removed"

    await edit(field, node, "node-feature-controller", taints=[theirs])
    await field.until("a person is asked", partial(in_phase, field, node, Phase.NEEDS_PERSON), 10.0)
    async with field.watching(node) as versions:
        await asyncio.sleep(LOOKS)
    assert not any(taint.key == QUARANTINE for it in versions for taint in it.spec.taints), "two programs fight"
    assert len(await field.incidents(node)) == before + 1
    await edit(field, node, "kubectl-taint", taints=None)
