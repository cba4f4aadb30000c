"""Whether DaemonSets can live under our taint, and what happens where they cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control.ground import Controller, Fleet, node_path
from control.memory_api import Obj
from fleetwell.control.tolerations import runs_on
from fleetwell.kube.resource import DAEMONSETS, NODES

OURS = {"key": "fleetwell.io/quarantine", "operator": "Exists", "effect": "NoSchedule"}


def daemonset(name: str = "plugin", **pod: Any) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "gpu"},
        "spec": {
            "selector": {"matchLabels": {"x": name}},
            "template": {"metadata": {}, "spec": {"containers": [], **pod}},
        },
    }


def affinity(*expressions: Obj) -> Obj:
    terms = [{"matchExpressions": list(expressions)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    ("pod", "taints", "expected"),
    [
        ({}, [], True),
        ({"nodeSelector": {"kind": "gpu"}}, [], True),
        ({"nodeSelector": {"kind": "cpu"}}, [], False),
        ({"affinity": affinity({"key": "kind", "operator": "In", "values": ["gpu"]})}, [], True),
        ({"affinity": affinity({"key": "kind", "operator": "NotIn", "values": ["gpu"]})}, [], False),
        ({"affinity": affinity({"key": "nope", "operator": "Exists"})}, [], False),
        ({"affinity": affinity({"key": "size", "operator": "Gt", "values": ["4"]})}, [], True),
        ({"affinity": affinity({"key": "size", "operator": "Lt", "values": ["4"]})}, [], False),
        ({}, [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}], False),
        (
            {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
            [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
            True,
        ),
        ({}, [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}], True),
        ({}, [{"key": "nvidia.com/gpu", "effect": "PreferNoSchedule"}], True),
    ],
)
def test_where_a_daemonset_has_pods_follows_its_controllers_rules(pod: Obj, taints: list[Obj], expected: bool) -> None:
    node = {"metadata": {"name": "a", "labels": {"kind": "gpu", "size": "8"}}, "spec": {"taints": taints}}
    assert runs_on(DAEMONSETS.decode(_json(daemonset(**pod))), NODES.decode(_json(node))) is expected


def _json(obj: Obj) -> bytes:
    return json.dumps(obj).encode()


def put(fleet: Fleet, obj: Obj) -> None:
    fleet.api.put(f"/apis/apps/v1/namespaces/gpu/daemonsets/{obj['metadata']['name']}", obj)


async def test_a_pool_whose_device_plugin_does_not_tolerate_the_taint_is_cordoned_and_says_what_to_set() -> None:
    """S36."""
    fleet = Fleet()
    fleet.policy()
    for name in ("a", "b"):
        fleet.node(name)
        fleet.healthy(name)
    put(fleet, daemonset())
    controller = Controller(fleet)
    await controller.chores.round()
    await controller.chores.watch()
    policy = fleet.all("remediationpolicies")[0]
    assert "gpu/plugin" in policy["status"]["problem"]
    assert OURS["key"] in policy["status"]["problem"]
    assert policy["status"]["nodes"] == 2

    fleet.bad("a")
    await controller.settle()
    assert fleet.taints("a") == []
    assert fleet.api.objects[node_path("a")]["spec"]["unschedulable"] is True

    put(fleet, daemonset(tolerations=[OURS]))
    await controller.chores.round()
    await controller.chores.watch()
    assert fleet.all("remediationpolicies")[0]["status"]["problem"] == ""
    fleet.bad("b")
    fleet.policy(budget={"maxUnavailablePercent": 100})
    await controller.settle()
    assert fleet.taints("b") == ["fleetwell.io/quarantine"]


async def test_a_policys_status_is_written_only_when_it_changes() -> None:
    fleet = Fleet()
    fleet.policy(replacement={"provider": "template", "template": {"apiVersion": "x.y/v1", "kind": "Z"}})
    fleet.node("a")
    controller = Controller(fleet)
    await controller.chores.watch()
    await controller.chores.watch()
    assert len(fleet.api.writes()) == 1
    assert "--replacement-kind x.y/v1/Z" in fleet.all("remediationpolicies")[0]["status"]["problem"]


async def test_incidents_that_ended_long_ago_are_pruned() -> None:
    fleet = Fleet()
    fleet.policy()
    fleet.node("a")
    fleet.healthy("a")
    controller = Controller(fleet)
    fleet.bad("a")
    await controller.settle()
    fleet.api.remove(node_path("a"))
    await controller.settle()
    fleet.time.passed += 7.9 * 86400
    await controller.chores.round()
    assert len(fleet.all("incidents")) == 1
    fleet.time.passed += 0.2 * 86400
    await controller.chores.round()
    await controller.chores.watch()
    assert fleet.all("incidents") == []


async def test_a_chore_that_fails_does_not_keep_the_others_from_being_done() -> None:
    fleet = Fleet()
    fleet.policy()
    fleet.node("a")
    fleet.healthy("a")
    controller = Controller(fleet)
    fleet.bad("a")
    await controller.settle()
    fleet.api.remove(node_path("a"))
    await controller.settle()
    fleet.time.passed += 9 * 86400
    fleet.api.failures += [("GET", "daemonsets", 403, "Forbidden")]
    await controller.chores.round()
    assert fleet.all("incidents") == []
