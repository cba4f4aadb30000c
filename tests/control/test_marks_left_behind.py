"""Marks do not outlive their incident, whatever somebody does to it; and they stay while it is open."""

from __future__ import annotations

import copy

import pytest

from control.ground import CUSTOM, Controller, Fleet
from control.memory_api import Obj
from fleetwell.api.resources import POLICIES
from fleetwell.control.observe import Observer

QUARANTINE = "fleetwell.io/quarantine"


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.policy(rules=[{"name": "slow", "faults": ["*"], "drain": {"after": "1h"}}])
    fleet.node("a")
    fleet.beat("a")
    fleet.bad("a")
    return fleet


def incident_path(fleet: Fleet) -> str:
    return f"{CUSTOM}/incidents/{fleet.incident()['metadata']['name']}"


def without_status(incident: Obj) -> None:
    del incident["status"]


async def test_an_incident_whose_status_was_wiped_leaves_no_mark_on_a_node_that_is_well(fleet: Fleet) -> None:
    controller = Controller(fleet)
    await controller.settle()
    assert fleet.taints("a") == [QUARANTINE]
    controller.die()
    fleet.healthy("a")
    fleet.api.edit(incident_path(fleet), without_status)
    controller = Controller(fleet, epoch=2)
    await controller.loop.intents.claim()
    await controller.run(10, each=fleet.beat_all)
    assert fleet.phase() == "Cleared"
    assert fleet.taints("a") == []
    assert fleet.annotations("a") == {}


@pytest.mark.parametrize("what", ["wiped", "deleted"])
async def test_a_node_that_is_still_bad_keeps_its_quarantine(fleet: Fleet, what: str) -> None:
    controller = Controller(fleet)
    await controller.settle()
    seen: list[list[str]] = []
    fleet.api.watchers.append(lambda _, plural, __: seen.append(fleet.taints("a")) if plural == "nodes" else None)
    fleet.api.edit(incident_path(fleet), without_status) if what == "wiped" else fleet.api.remove(incident_path(fleet))
    await controller.run(10, each=fleet.beat_all)
    assert fleet.phase() == "Quarantined"
    assert all(taints == [QUARANTINE] for taints in seen)
    assert fleet.taints("a") == [QUARANTINE]


async def test_a_policy_that_the_new_controller_cannot_read_keeps_what_it_holds(fleet: Fleet) -> None:
    controller = Controller(fleet)
    await controller.settle()
    controller.die()
    fleet.api.remove(f"{CUSTOM}/remediationpolicies/gpu")
    controller = Controller(fleet, epoch=2)
    observer = Observer(fleet.api, controller.picture, namespace="fleetwell", changed=lambda: None)
    policies = observer.following(POLICIES)
    policies.undecodable.add("gpu")
    await controller.loop.intents.claim()
    await controller.run(10, each=fleet.beat_all)
    assert fleet.phase() == "Quarantined"
    assert "RemediationPolicy gpu cannot be read" in fleet.incident()["status"]["summary"]
    assert fleet.taints("a") == [QUARANTINE]
    policies.undecodable.clear()
    await controller.run(40, each=fleet.beat_all)
    assert fleet.phase() == "Released"
    assert fleet.taints("a") == []


async def test_a_copy_of_an_incident_does_nothing_a_second_time(fleet: Fleet) -> None:
    controller = Controller(fleet)
    await controller.settle()
    copied = copy.deepcopy(fleet.incident())
    copied["metadata"] = {"name": "z-copy"}
    fleet.api.put(f"{CUSTOM}/incidents/z-copy", copied)
    before = len(fleet.api.writes())
    await controller.run(60, each=fleet.beat_all)
    assert len(fleet.api.writes()) - before < 5
    assert sorted(it["status"]["phase"] for it in fleet.all("incidents")) == ["Cleared", "Quarantined"]
    assert fleet.api.objects[f"{CUSTOM}/incidents/z-copy"]["status"]["phase"] == "Cleared"
    assert fleet.taints("a") == [QUARANTINE]
