"""From a finding to the node's release, with the rest of the cluster played by the test."""

from __future__ import annotations

import pytest

from control.ground import Controller, Fleet, health_path, node_path, pod_path
from control.memory_api import Obj


class Cluster:
    """Kubelet, agent and janitor, as far as the story needs them."""

    def __init__(self, fleet: Fleet, *, reboots: bool = True) -> None:
        self.fleet = fleet
        self.reboots = reboots
        self.rebooted = 0
        self.proofs = 0

    def play(self) -> None:
        self._pods_end()
        for name in ("a", "b", "c", "d"):
            if node_path(name) in self.fleet.api.objects:
                self.fleet.beat(name)
                self._agent(name)

    def _pods_end(self) -> None:
        for path, pod in list(self.fleet.api.objects.items()):
            if "/pods/" in path and "deletionTimestamp" in pod["metadata"]:
                self.fleet.api.remove(path)

    def _agent(self, name: str) -> None:
        bell = self.fleet.api.objects.get(health_path(name), {}).get("spec", {}).get("operation")
        path = f"/apis/fleetwell.io/v1alpha1/nodeoperations/{bell}"
        operation = self.fleet.api.objects.get(path)
        if operation is None or operation.get("status", {}).get("phase", "Pending") != "Pending":
            return
        if operation["spec"]["kind"] == "Prove":
            self.proofs += 1
            self._answer(path, "Succeeded", [{"check": "count", "verdict": "OK"}])
        elif not self.reboots:
            self._answer(path, "Failed", [])
        else:
            self.rebooted += 1
            self.fleet.api.edit(node_path(name), lambda it: it["status"]["nodeInfo"].update(bootID="boot-2"))
            self.fleet.healthy(name, boot="boot-2")
            self._answer(path, "Succeeded", [])

    def _answer(self, path: str, phase: str, results: list[Obj]) -> None:
        self.fleet.api.edit(path, lambda it: it.update(status={"phase": phase, "results": results}))


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.policy()
    fleet.working("a", "b", "c", "d")
    fleet.pod("rank-0", "a", owner="job")
    fleet.pod("plugin-a", "a", owner="plugin", kind="DaemonSet")
    return fleet


async def test_a_bad_gpu_leads_to_quarantine_drain_reboot_proof_and_release(fleet: Fleet) -> None:
    cluster, controller = Cluster(fleet), Controller(fleet)
    await controller.settle()
    assert fleet.all("incidents") == []

    fleet.bad("a")
    await controller.settle()
    assert fleet.phase() in {"Quarantined", "Draining"}
    assert fleet.taints("a") == ["fleetwell.io/quarantine"]
    assert fleet.annotations("a")["karpenter.sh/do-not-disrupt"] == "true"

    await controller.run(120, cluster.play)

    assert fleet.phase() == "Released"
    assert fleet.taints("a") == []
    assert fleet.annotations("a") == {}
    assert cluster.rebooted == 1
    assert cluster.proofs == 1
    assert pod_path("rank-0") not in fleet.api.objects
    assert pod_path("plugin-a") in fleet.api.objects
    timeline = fleet.incident()["status"]["timeline"]
    assert list(timeline) == ["opened", "quarantined", "drained", "remedied", "proved", "ended"]


async def test_a_fault_that_asks_for_replacement_is_replaced_once_and_ends_when_the_capacity_is_back(
    fleet: Fleet,
) -> None:
    cluster, controller = Cluster(fleet), Controller(fleet)
    fleet.bad("a", "GpuRowRemapFailed", "replace")
    await controller.run(60, cluster.play)

    (order,) = fleet.all("machinereplacements")
    assert order["spec"] | {"reason": ""} == {
        "nodeName": "a",
        "nodeUID": "a-uid",
        "providerID": "lab://a",
        "incident": fleet.incident()["metadata"]["name"],
        "bootID": "boot-1",
        "reason": "",
    }
    assert "GpuRowRemapFailed" in order["spec"]["reason"]
    assert cluster.rebooted == 0

    fleet.api.remove(node_path("a"))
    await controller.run(10, cluster.play)
    assert fleet.phase() == "Remedying"

    fleet.node("e")
    await controller.run(10, cluster.play)
    assert fleet.phase() == "Replaced"


async def test_a_reboot_that_fails_climbs_to_replacement(fleet: Fleet) -> None:
    cluster, controller = Cluster(fleet, reboots=False), Controller(fleet)
    fleet.bad("a")
    await controller.run(60, cluster.play)

    assert len(fleet.operations("Reboot")) == 1
    assert len(fleet.all("machinereplacements")) == 1
    assert [it["remedy"] for it in fleet.incident()["status"]["attempts"]] == ["reboot", "replace"]


async def test_a_new_node_with_the_unproven_taint_is_proven_and_then_admitted(fleet: Fleet) -> None:
    cluster, controller = Cluster(fleet), Controller(fleet)
    taint = {"key": "fleetwell.io/unproven", "effect": "NoSchedule"}
    fleet.node("e", taints=[taint])
    fleet.healthy("e")
    await controller.settle()
    assert fleet.incident()["spec"]["kind"] == "Admission"

    def play() -> None:
        cluster.play()
        fleet.beat("e")
        cluster._agent("e")

    await controller.run(30, play)
    assert fleet.phase() == "Released"
    assert fleet.taints("e") == []
    assert cluster.proofs == 1


@pytest.mark.parametrize("fault", [("GpuFallenOffBus", "reboot"), ("GpuRowRemapFailed", "replace")])
@pytest.mark.parametrize("every", [6, 10, 26])
async def test_a_controller_that_dies_again_and_again_does_nothing_twice(
    fleet: Fleet, fault: tuple[str, str], every: int
) -> None:
    cluster = Cluster(fleet)
    fleet.bad("a", *fault)
    for term in range(240 // every):
        controller = Controller(fleet, epoch=term + 1)
        await controller.loop.intents.claim()
        await controller.run(every, cluster.play)
        controller.die()

    assert len(fleet.all("incidents")) == 1
    if fault[1] == "reboot":
        assert fleet.phase() == "Released"
        assert (cluster.rebooted, cluster.proofs) == (1, 1)
        assert fleet.taints("a") == []
    else:
        assert len(fleet.api.sent("POST", "machinereplacements")) == 1
        assert fleet.operations("Reboot") == []


async def test_a_fleet_at_rest_is_not_written_to(fleet: Fleet) -> None:
    cluster, controller = Cluster(fleet), Controller(fleet)
    await controller.run(60, cluster.play)
    assert fleet.api.writes() == []
