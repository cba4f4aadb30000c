"""A node that recovers between the decision and its effect is neither restarted nor replaced (NVSentinel #121)."""

from __future__ import annotations

import operator

from control.ground import Controller, Fleet
from control.memory_api import Obj


def a_fleet() -> Fleet:
    fleet = Fleet()
    fleet.working("a", "b")
    fleet.policy()
    return fleet


def proofs_pass(fleet: Fleet) -> None:
    """Play the agents: they are heard, answer every proof, and obey what they are asked for and is not cancelled."""
    fleet.beat_all()
    for path, operation in list(fleet.api.objects.items()):
        if "/nodeoperations/" not in path or operation.get("status", {}).get("phase") in {"Succeeded", "Cancelled"}:
            continue
        phase = "Cancelled" if operation["spec"].get("cancel") else "Succeeded"
        if operation["spec"]["kind"] == "Prove" or phase == "Cancelled":
            fleet.api.edit(path, operator.methodcaller("update", {"status": {"phase": phase}}))


def results(fleet: Fleet) -> list[str]:
    attempts: list[Obj] = fleet.incident()["status"]["attempts"]
    return [it.get("result", "Intended") for it in attempts]


async def test_a_node_that_recovers_while_its_reboot_cannot_be_asked_for_is_not_rebooted() -> None:
    fleet = a_fleet()
    controller = Controller(fleet)
    await controller.settle()
    fleet.api.failures += [("POST", "nodeoperations", 500, "InternalError")] * 20
    fleet.bad("a")
    await controller.run(20, each=fleet.beat_all)
    assert results(fleet) == ["Intended"]
    fleet.healthy("a")
    fleet.api.failures.clear()
    await controller.run(400, each=lambda: proofs_pass(fleet))
    assert not fleet.operations("Reboot")
    assert results(fleet) == ["Cancelled"]
    assert fleet.phase() == "Released"
    assert fleet.taints("a") == []


async def test_a_node_that_recovers_while_its_replacement_cannot_be_ordered_is_not_replaced() -> None:
    fleet = a_fleet()
    controller = Controller(fleet)
    await controller.settle()
    fleet.api.failures += [("POST", "machinereplacements", 500, "InternalError")] * 20
    fleet.bad("a", "GpuRowRemapFailed", "replace")
    await controller.run(20, each=fleet.beat_all)
    assert results(fleet) == ["Intended"]
    fleet.healthy("a")
    fleet.api.failures.clear()
    await controller.run(400, each=lambda: proofs_pass(fleet))
    assert not fleet.all("machinereplacements")
    assert fleet.phase() == "Released"
    assert fleet.taints("a") == []


async def test_an_agent_that_comes_back_finds_no_order_to_reboot_that_was_given_for_its_silence() -> None:
    fleet = a_fleet()
    controller = Controller(fleet)
    await controller.settle()

    def only_b() -> None:
        fleet.beat("b")
        controller.picture.agents_fallen_silent()

    await controller.run(300, each=only_b)
    assert fleet.phase() == "Remedying"
    assert not [it for it in fleet.operations("Reboot") if not it["spec"].get("cancel")]
    await controller.run(400, each=lambda: proofs_pass(fleet))
    assert results(fleet) == ["Cancelled"]
    assert fleet.phase() == "Released"
    assert fleet.taints("a") == []


async def test_an_order_that_was_placed_is_followed_by_the_controller_that_comes_after_a_hold() -> None:
    """What a provider was asked for stands with the provider: it is neither forgotten nor ordered a second time."""
    fleet = a_fleet()
    controller = Controller(fleet)
    await controller.settle()
    fleet.bad("a", "GpuRowRemapFailed", "replace")
    await controller.run(20, each=fleet.beat_all)
    assert len(fleet.all("machinereplacements")) == 1
    path = next(it for it in fleet.api.objects if "/incidents/" in it)
    hold = {"by": "ada", "at": fleet.time.now().isoformat()}
    fleet.api.edit(path, lambda it: it["spec"].update(hold=hold))
    await controller.run(10, each=fleet.beat_all)
    controller.die()
    controller = Controller(fleet, epoch=2)
    await controller.loop.intents.claim()
    fleet.api.edit(path, lambda it: it["spec"].pop("hold"))
    await controller.run(20, each=fleet.beat_all)
    assert len(fleet.all("machinereplacements")) == 1
    assert results(fleet) == ["Running"]
