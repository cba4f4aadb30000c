"""What the loop promises: written before done, decided again on conflict, one leader, no storms of writes."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from control.ground import CUSTOM, Controller, Fleet, health_path, node_path
from control.test_the_whole_story import Cluster
from fleetwell.control import loop
from fleetwell.control.settings import Settings
from fleetwell.policy.case import Step
from fleetwell.policy.ladder import decide
from fleetwell.policy.view import Episode, Surroundings


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.policy()
    fleet.working("a", "b", "c", "d")
    return fleet


async def test_what_is_done_to_a_node_stands_in_the_incident_first(fleet: Fleet) -> None:
    cluster, controller = Cluster(fleet), Controller(fleet)
    written: dict[str, str] = {}

    fleet.api.before.append(("PATCH", "nodes/a", lambda: written.update(taint=fleet.phase())))
    fleet.api.before.append(
        (
            "POST",
            "nodeoperations",
            lambda: written.update(attempt=str(fleet.incident()["status"]["attempts"][-1]["remedy"])),
        )
    )
    fleet.bad("a")
    await controller.run(40, cluster.play)
    assert written["taint"] in {"Quarantined", "Draining"}
    assert written["attempt"] == "reboot"


async def test_when_the_intent_cannot_be_written_nothing_is_done(fleet: Fleet) -> None:
    controller = Controller(fleet)
    await controller.settle()
    fleet.bad("a")
    fleet.api.failures += [("PUT", "incidents", 500, "InternalError")] * 500
    await controller.run(20)
    assert fleet.taints("a") == []
    fleet.api.failures.clear()
    await controller.run(10)
    assert fleet.taints("a") == ["fleetwell.io/quarantine"]
    assert len(fleet.all("incidents")) == 1


async def test_a_persons_word_in_the_moment_of_the_write_is_heeded(fleet: Fleet) -> None:
    controller = Controller(fleet)
    fleet.policy(rules=[{"name": "all", "faults": ["*"], "tolerate": "10s", "ladder": [{"remedy": "reboot"}]}])
    fleet.bad("a")
    await controller.settle()
    name = fleet.incident()["metadata"]["name"]
    hold = {"by": "ada", "at": fleet.time.now().isoformat(), "reason": "looking"}

    def speak() -> None:
        fleet.api.edit(f"{CUSTOM}/incidents/{name}", lambda it: it["spec"].update(hold=hold))

    fleet.api.before.append(("PUT", f"incidents/{name}/status", speak))
    await controller.step(11)
    assert fleet.phase() == "Held"
    assert fleet.taints("a") == []


async def test_the_budget_holds_what_is_too_much_and_the_holds_are_not_rewritten(fleet: Fleet) -> None:
    controller = Controller(fleet, settings=Settings(minor_write_interval=30))
    fleet.policy(budget={"maxUnavailablePercent": 25})
    for name in ("a", "b", "c"):
        fleet.bad(name)
    await controller.settle()
    taken = [name for name in ("a", "b", "c") if fleet.taints(name)]
    assert len(taken) == 1
    held = [it["status"]["hold"] for it in fleet.all("incidents") if it["status"].get("hold")]
    assert [hold["reason"] for hold in held] == ["Budget", "Budget"]
    assert "1 of 4 out, limit 1" in held[0]["message"]

    before = len(fleet.api.sent("PUT", "incidents"))
    await controller.run(120, fleet.beat_all)
    # Two that wait, rewritten at most every 30 s; and the first one's drain and attempt.
    assert len(fleet.api.sent("PUT", "incidents")) - before <= 2 * 4 + 8


async def test_leave_goes_on_to_the_next_when_a_node_is_given_back(fleet: Fleet) -> None:
    cluster, controller = Cluster(fleet), Controller(fleet)
    fleet.policy(budget={"maxUnavailablePercent": 25})
    for name in ("a", "b"):
        fleet.bad(name)
    worst = 0

    def watch() -> None:
        nonlocal worst
        cluster.play()
        worst = max(worst, sum(1 for name in "abcd" if fleet.taints(name)))

    await controller.run(240, watch)
    assert worst == 1
    assert {it["status"]["phase"] for it in fleet.all("incidents")} == {"Released"}
    assert cluster.rebooted == 2


async def test_recovery_goes_on_while_the_policy_is_paused(fleet: Fleet) -> None:
    """S9."""
    cluster, controller = Cluster(fleet), Controller(fleet)
    fleet.bad("a")
    await controller.run(6, cluster.play)
    assert fleet.taints("a")
    name = fleet.incident()["metadata"]["name"]
    fleet.policy(mode="Paused", budget={"maxUnavailablePercent": 0})
    word = {"by": "ada", "at": fleet.time.now().isoformat(), "reason": "mine"}
    fleet.api.edit(f"{CUSTOM}/incidents/{name}", lambda it: it["spec"].update(release=word))
    await controller.run(6, cluster.play)
    assert fleet.phase() == "Released"
    assert fleet.taints("a") == []


async def test_in_dry_run_no_node_is_touched(fleet: Fleet) -> None:
    cluster, controller = Cluster(fleet), Controller(fleet)
    fleet.policy(mode="DryRun")
    fleet.bad("a")
    await controller.run(60, cluster.play)
    assert fleet.incident()["status"]["hold"]["reason"] == "DryRun"
    assert fleet.api.sent("PATCH", "nodes/") == []
    assert fleet.all("nodeoperations") == []


async def test_two_controllers_with_a_partition_never_both_act(fleet: Fleet) -> None:
    """S27: the old leader's late write fails, because the new one has rewritten the incident."""
    old = Controller(fleet, epoch=1)
    fleet.policy(rules=[{"name": "all", "faults": ["*"], "tolerate": "10s", "ladder": [{"remedy": "reboot"}]}])
    fleet.bad("a")
    await old.settle()
    old.die()  # it sees nothing any more, and has not noticed that it does not lead
    new = Controller(fleet, epoch=2)
    await new.loop.intents.claim()
    await old.step(11)
    assert fleet.incident()["status"]["epoch"] == 2
    assert fleet.taints("a") == []
    await new.settle()
    assert fleet.taints("a") == ["fleetwell.io/quarantine"]
    before = fleet.api.writes()
    await old.run(20)
    assert fleet.api.writes() == before


async def test_an_incident_that_a_crash_left_without_status_is_taken_up(fleet: Fleet) -> None:
    controller = Controller(fleet)
    fleet.bad("a")
    fleet.api.failures += [("PUT", "incidents", 500, "InternalError")] * 2
    await controller.loop.one_pass()
    assert "status" not in fleet.incident()
    controller.die()
    second = Controller(fleet, epoch=2)
    await second.loop.intents.claim()
    await second.settle()
    assert fleet.phase() in {"Quarantined", "Draining"}


async def test_an_incident_whose_creation_was_answered_by_nobody_is_adopted(fleet: Fleet) -> None:
    controller = Controller(fleet)
    fleet.bad("a")
    fleet.api.watchers.clear()  # the informer lags: the controller does not see what it has made
    fleet.api.failures += [("PUT", "incidents", 500, "InternalError")]
    await controller.loop.one_pass()
    await controller.run(10)
    assert len(fleet.all("incidents")) == 1
    assert fleet.incident()["status"]["timeline"]["quarantined"]


async def test_a_node_that_is_gone_ends_its_incident(fleet: Fleet) -> None:
    """S25."""
    controller = Controller(fleet)
    fleet.bad("a")
    await controller.settle()
    fleet.api.remove(node_path("a"))
    await controller.settle()
    assert fleet.phase() == "Gone"


async def test_marks_of_an_incident_that_was_deleted_are_taken_off(fleet: Fleet) -> None:
    """S28."""
    controller = Controller(fleet)
    fleet.bad("a")
    await controller.settle()
    fleet.healthy("a")
    fleet.api.remove(f"{CUSTOM}/incidents/{fleet.incident()['metadata']['name']}")
    await controller.step(1)
    assert fleet.taints("a") == []
    assert fleet.annotations("a") == {}


async def test_a_policy_that_is_removed_releases_what_it_held(fleet: Fleet) -> None:
    """S28."""
    controller = Controller(fleet)
    fleet.bad("a")
    await controller.settle()
    fleet.api.remove(f"{CUSTOM}/remediationpolicies/gpu")
    await controller.step(1)
    assert fleet.phase() == "Released"
    assert fleet.taints("a") == []


async def test_a_report_that_names_an_earlier_boot_brings_no_reboot(fleet: Fleet) -> None:
    """S2: after a cold start an old event was replayed, and a healthy node rebooted."""
    cluster = Cluster(fleet)
    fleet.bad("a")
    fleet.api.edit(node_path("a"), lambda it: it["status"]["nodeInfo"].update(bootID="boot-9"))
    controller = Controller(fleet)
    await controller.run(60, cluster.play)
    assert fleet.operations("Reboot") == []
    assert cluster.rebooted == 0


async def test_recovery_before_the_remedy_cancels_it(fleet: Fleet) -> None:
    """S1."""
    cluster, controller = Cluster(fleet), Controller(fleet)
    fleet.pod("rank-0", "a", owner="job")
    fleet.bad("a")
    await controller.run(6, fleet.beat_all)
    assert fleet.phase() == "Draining"
    fleet.healthy("a")
    await controller.run(240, cluster.play)
    assert fleet.operations("Reboot") == []
    assert fleet.phase() == "Released"
    assert fleet.taints("a") == []


async def test_one_episode_that_cannot_be_decided_does_not_stop_the_others(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sometimes(episode: Episode, around: Surroundings, now: dt.datetime) -> Step:
        if episode.spec.node_name == "a":
            raise RuntimeError("no")
        return decide(episode, around, now)

    monkeypatch.setattr(loop, "decide", sometimes)
    controller = Controller(fleet)
    fleet.bad("a")
    fleet.bad("b")
    await controller.settle()
    assert fleet.taints("b") == ["fleetwell.io/quarantine"]
    assert fleet.taints("a") == []


async def test_an_effect_that_fails_is_tried_again_and_nobody_else_waits_for_it(fleet: Fleet) -> None:
    controller = Controller(fleet)
    fleet.api.failures += [("GET", "nodes/a", 403, "Forbidden")] * 2
    fleet.bad("a")
    fleet.bad("b")
    await controller.settle()
    assert fleet.taints("b") == ["fleetwell.io/quarantine"]
    assert fleet.taints("a") == []
    assert "403" in controller.loop.dispatcher.detail("a")
    await controller.run(16)
    assert fleet.taints("a") == ["fleetwell.io/quarantine"]


async def test_the_time_until_something_is_due_is_known(fleet: Fleet) -> None:
    controller = Controller(fleet)
    fleet.policy(rules=[{"name": "all", "faults": ["*"], "tolerate": "10s", "ladder": [{"remedy": "reboot"}]}])
    await controller.settle()
    assert controller.loop.next_due() == 60
    fleet.bad("a")
    await controller.settle()
    assert 0 < controller.loop.next_due() <= 10
    assert health_path("a") in fleet.api.objects


async def test_every_write_but_one_that_makes_or_evicts_says_what_it_was_read_from(fleet: Fleet) -> None:
    """What a cut-off leader still had on the way arrives when another leads: on its version it must fail."""
    fleet.policy(expected={"gpus": 8})
    cluster, controller = Cluster(fleet), Controller(fleet)
    unlocked: list[tuple[str, str]] = []
    send = fleet.api._send

    async def looked_at(method: str, path: str, what: str, **more: Any) -> bytes:
        if method in {"PUT", "PATCH"} and not json.loads(more["body"])["metadata"].get("resourceVersion"):
            unlocked.append((method, path))
        return await send(method, path, what, **more)

    fleet.api._send = looked_at  # type: ignore[method-assign]
    fleet.bad("a")
    for _ in range(60):
        cluster.play()
        await controller.chores.watch()
        await controller.step(2)
    assert fleet.phase() == "Released"
    assert len(fleet.api.sent("PATCH")) > 10
    assert unlocked == []
