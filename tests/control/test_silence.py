"""Agents that fall silent: told by our own clock, said in their nodes' conditions, and never for others' types."""

from __future__ import annotations

import pytest

from control.ground import Controller, Fleet, Time, node_path
from fleetwell.control.freshness import Freshness
from fleetwell.kube.objects import Lease, LeaseSpec, ObjectMeta


def lease(renewed: str) -> Lease:
    return Lease(metadata=ObjectMeta(name="a"), spec=LeaseSpec(renew_time=renewed))


def test_an_agents_own_clock_does_not_count() -> None:
    time = Time()
    freshness = Freshness(180, time.monotonic)
    assert freshness.renewed(lease("1999-01-01T00:00:00Z"))
    time.passed = 179
    assert freshness.fresh("a")
    assert not freshness.renewed(lease("1999-01-01T00:00:00Z"))
    time.passed = 181
    assert freshness.newly_stale() == ["a"]
    assert freshness.newly_stale() == []
    assert not freshness.fresh("a")
    assert freshness.renewed(lease("1998-01-01T00:00:00Z"))
    assert freshness.fresh("a")


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.policy(rules=[{"name": "all", "faults": ["*"], "tolerate": "1h", "ladder": [{"remedy": "reboot"}]}])
    fleet.working("a", "b")
    return fleet


def conditions(fleet: Fleet, name: str) -> dict[str, tuple[str, str]]:
    found = fleet.api.objects[node_path(name)]["status"]["conditions"]
    return {it["type"]: (it["status"], it.get("reason", "")) for it in found}


async def test_the_conditions_of_a_silent_agent_become_unknown_and_ready_stays_the_kubelets(fleet: Fleet) -> None:
    controller = Controller(fleet)
    await controller.settle()
    fleet.time.passed = 170
    fleet.beat("b")
    fleet.time.passed = 200
    await controller.chores.silence()
    assert conditions(fleet, "a") == {"Ready": ("True", ""), "fleetwell.io/GPUHealthy": ("Unknown", "AgentSilent")}
    assert conditions(fleet, "b")["fleetwell.io/GPUHealthy"] == ("True", "")
    assert fleet.events.reasons("a") == ["AgentSilent"]

    writes = fleet.api.writes()
    await controller.chores.silence()
    assert fleet.api.writes() == writes

    await controller.settle()
    assert fleet.incident()["status"]["findings"][0]["fault"] == "AgentSilent"


async def test_an_agent_that_is_back_in_that_moment_is_not_silenced(fleet: Fleet) -> None:
    controller = Controller(fleet)
    fleet.api.watchers.clear()  # the informer lags
    fleet.time.passed = 200
    fleet.beat("a")
    fleet.beat("b")
    await controller.chores.silence()
    assert fleet.api.writes() == []


async def test_a_conflict_is_left_to_the_next_round(fleet: Fleet) -> None:
    controller = Controller(fleet)
    fleet.time.passed = 200
    fleet.api.failures += [("PATCH", "nodes/a/status", 409, "Conflict")]
    await controller.chores.silence()
    assert conditions(fleet, "a")["fleetwell.io/GPUHealthy"] == ("True", "")
    await controller.chores.silence()
    assert conditions(fleet, "a")["fleetwell.io/GPUHealthy"] == ("Unknown", "AgentSilent")


async def test_a_new_controller_gives_every_agent_a_full_period(fleet: Fleet) -> None:
    fleet.time.passed = 10_000
    controller = Controller(fleet)
    await controller.chores.silence()
    await controller.settle()
    assert fleet.api.writes() == []
