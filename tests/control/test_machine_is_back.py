"""S45: deleting a Node object mends no machine. What registers again is tested before it works."""

from __future__ import annotations

import pytest

from control.ground import CUSTOM, Controller, Fleet, health_path, node_path
from control.test_recovered_in_time import proofs_pass

QUARANTINE = "fleetwell.io/quarantine"


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.policy(budget={"maxUnavailable": 1, "maxUnavailablePercent": 50})
    fleet.working("a", "b", "c")
    return fleet


async def taken_out(fleet: Fleet, recovery: str = "reboot") -> Controller:
    controller = Controller(fleet)
    await controller.settle()
    fleet.bad("a", recovery=recovery)
    await controller.run(20, each=fleet.beat_all)
    assert fleet.taints("a") == [QUARANTINE]
    return controller


def registers(fleet: Fleet, name: str, machine: str) -> None:
    """Let a Node be deleted with what hangs on it, and a machine register under a name."""
    fleet.api.remove(health_path("a"))
    fleet.api.remove(node_path("a"))
    fleet.node(name, uid="another-uid")
    fleet.api.edit(node_path(name), lambda it: it["spec"].update(providerID=f"lab://{machine}"))


def phases(fleet: Fleet) -> list[str]:
    return sorted(str(it["status"]["phase"]) for it in fleet.all("incidents"))


@pytest.mark.parametrize("name", ["a", "renamed"])
async def test_a_machine_that_was_taken_out_is_tested_when_its_node_is_made_anew(fleet: Fleet, name: str) -> None:
    controller = await taken_out(fleet)
    registers(fleet, name, "a")
    await controller.settle()
    assert fleet.taints(name) == [QUARANTINE]
    assert phases(fleet) == ["Gone", "Proving"]
    fleet.healthy(name)
    await controller.run(60, each=lambda: proofs_pass(fleet))
    assert fleet.taints(name) == []
    assert phases(fleet) == ["Gone", "Released"]
    await controller.run(60, each=lambda: proofs_pass(fleet))
    assert len(fleet.all("incidents")) == 2


async def test_the_fault_that_is_still_there_goes_on_being_repaired(fleet: Fleet) -> None:
    controller = await taken_out(fleet)
    registers(fleet, "a", "a")
    fleet.bad("a")
    await controller.run(20, each=fleet.beat_all)
    assert phases(fleet) == ["Gone", "Remedying"]
    assert fleet.taints("a") == [QUARANTINE]


async def test_other_hardware_under_the_old_name_begins_anew(fleet: Fleet) -> None:
    controller = await taken_out(fleet)
    registers(fleet, "a", "new-machine")
    fleet.healthy("a")
    await controller.run(20, each=fleet.beat_all)
    assert fleet.taints("a") == []
    assert phases(fleet) == ["Gone"]


async def test_the_broken_machine_itself_is_not_the_capacity_that_replaces_it(fleet: Fleet) -> None:
    controller = await taken_out(fleet, recovery="replace")
    assert len(fleet.all("machinereplacements")) == 1
    registers(fleet, "a", "a")
    await controller.run(20, each=fleet.beat_all)
    assert phases(fleet) == ["Proving", "Remedying"]
    assert fleet.taints("a") == [QUARANTINE]
    fleet.node("d")
    await controller.run(20, each=fleet.beat_all)
    assert phases(fleet) == ["Proving", "Replaced"]


async def test_a_machine_that_a_person_let_go_is_nobodys_business(fleet: Fleet) -> None:
    controller = await taken_out(fleet, recovery="replace")
    fleet.api.remove(health_path("a"))
    fleet.api.remove(node_path("a"))
    await controller.run(1900, each=fleet.beat_all, by=30)
    assert phases(fleet) == ["NeedsPerson"]
    path = f"{CUSTOM}/incidents/{fleet.incident()['metadata']['name']}"
    word = {"by": "ada", "at": fleet.time.now().isoformat(), "reason": "scrapped"}
    fleet.api.edit(path, lambda it: it["spec"].update(release=word))
    await controller.settle()
    assert phases(fleet) == ["Gone"]
    fleet.node("a", uid="another-uid")
    await controller.run(20, each=fleet.beat_all)
    assert phases(fleet) == ["Gone"]
    assert fleet.taints("a") == []


async def test_a_machine_that_has_long_been_at_work_again_is_not_taken_out_for_what_was_once(fleet: Fleet) -> None:
    """As when fleetwell is updated, or a policy goes from DryRun to Enforce, weeks after the Node was made anew."""
    controller = await taken_out(fleet)
    controller.die()
    registers(fleet, "a", "a")
    fleet.healthy("a")
    fleet.time.passed += 86_400
    fleet.beat_all()
    controller = Controller(fleet, epoch=2)
    await controller.loop.intents.claim()
    await controller.run(20, each=fleet.beat_all)
    assert phases(fleet) == ["Gone"]
    assert fleet.taints("a") == []
