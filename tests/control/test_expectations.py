"""What a policy says that its nodes must have reaches their NodeHealths: only where it differs, and goes again."""

from __future__ import annotations

from typing import Any

import pytest

from control.ground import CUSTOM, Controller, Fleet, health_path, node_path

POLICY = f"{CUSTOM}/remediationpolicies/gpu"


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.working("a", "b")
    return fleet


def spec(fleet: Fleet, name: str) -> dict[str, Any]:
    found: dict[str, Any] = fleet.api.objects[health_path(name)].get("spec", {})
    return found


@pytest.mark.parametrize("mode", ["Enforce", "DryRun", "Paused"])
async def test_it_is_told_in_every_mode_and_only_once(fleet: Fleet, mode: str) -> None:
    fleet.policy(mode=mode, expected={"gpus": 8, "efa": 32})
    controller = Controller(fleet)
    await controller.chores.tell_expectations()
    assert spec(fleet, "a") == spec(fleet, "b") == {"expected": {"gpus": 8, "efa": 32}}
    written = fleet.api.writes()
    assert written == [("PATCH", health_path("a")), ("PATCH", health_path("b"))]
    await controller.chores.tell_expectations()
    assert fleet.api.writes() == written


async def test_a_change_is_told_and_what_is_left_out_any_more_is_taken_away(fleet: Fleet) -> None:
    fleet.policy(expected={"gpus": 8, "efa": 32})
    controller = Controller(fleet)
    await controller.chores.tell_expectations()
    fleet.policy(expected={"gpus": 0, "infiniband": 8})
    await controller.chores.tell_expectations()
    assert spec(fleet, "a") == {"expected": {"gpus": 0, "infiniband": 8}}


@pytest.mark.parametrize("how", ["says nothing", "is gone", "governs it no more"])
async def test_it_is_cleared_when_the_policy(fleet: Fleet, how: str) -> None:
    fleet.policy(expected={"gpus": 8})
    controller = Controller(fleet)
    await controller.chores.tell_expectations()
    match how:
        case "says nothing":
            fleet.policy()
        case "is gone":
            fleet.api.remove(POLICY)
        case _:
            fleet.api.edit(node_path("a"), lambda it: it["metadata"]["labels"].clear())
    await controller.chores.tell_expectations()
    assert spec(fleet, "a") == {}


async def test_the_doorbell_beside_it_stays(fleet: Fleet) -> None:
    fleet.api.edit(health_path("a"), lambda it: it.update(spec={"operation": "rung"}))
    fleet.policy(expected={"gpus": 8})
    controller = Controller(fleet)
    await controller.chores.tell_expectations()
    assert spec(fleet, "a") == {"operation": "rung", "expected": {"gpus": 8}}
    fleet.policy()
    await controller.chores.tell_expectations()
    assert spec(fleet, "a") == {"operation": "rung"}


async def test_a_policy_that_says_nothing_writes_nothing(fleet: Fleet) -> None:
    fleet.policy()
    await Controller(fleet).chores.tell_expectations()
    assert fleet.api.writes() == []


async def test_a_node_health_that_is_not_there_is_not_made(fleet: Fleet) -> None:
    fleet.api.remove(health_path("a"))
    fleet.policy(expected={"gpus": 8})
    await Controller(fleet).chores.tell_expectations()
    assert fleet.api.writes() == [("PATCH", health_path("b"))]


async def test_on_a_tie_what_was_told_stays(fleet: Fleet) -> None:
    fleet.policy(expected={"gpus": 8})
    controller = Controller(fleet)
    await controller.chores.tell_expectations()
    rival = fleet.api.objects[POLICY]["spec"] | {"expected": {"gpus": 4}}
    fleet.api.put(f"{CUSTOM}/remediationpolicies/another", {"metadata": {"generation": 1}, "spec": rival})
    await controller.chores.tell_expectations()
    assert spec(fleet, "a") == {"expected": {"gpus": 8}}


async def test_one_that_fails_keeps_no_other_and_is_tried_again(fleet: Fleet) -> None:
    fleet.policy(expected={"gpus": 8})
    controller = Controller(fleet)
    fleet.api.failures += [("PATCH", "nodehealths/a", 500, "InternalError")]
    await controller.chores.tell_expectations()
    assert (spec(fleet, "a"), spec(fleet, "b")) == ({}, {"expected": {"gpus": 8}})
    await controller.chores.tell_expectations()
    assert spec(fleet, "a") == {"expected": {"gpus": 8}}


async def test_the_controller_tells_it_in_its_frequent_round(fleet: Fleet) -> None:
    fleet.policy(expected={"gpus": 8})
    await Controller(fleet).chores.watch()
    assert spec(fleet, "a") == {"expected": {"gpus": 8}}
