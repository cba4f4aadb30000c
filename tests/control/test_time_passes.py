"""What time does to the controller: a clock that is set, and weeks that pass."""

from __future__ import annotations

from control.ground import Controller, Fleet
from fleetwell.control.settings import Settings


async def test_a_clock_that_is_set_back_delays_no_look() -> None:
    fleet = Fleet()
    fleet.policy(rules=[{"name": "all", "faults": ["*"], "tolerate": "5m"}])
    fleet.node("a")
    fleet.beat("a")
    fleet.bad("a")
    controller = Controller(fleet)
    await controller.settle()
    fleet.time.set_by = -3600.0
    await controller.settle()
    assert controller.loop.next_due() <= Settings().longest_wait


async def test_old_operations_of_an_incident_that_stays_open_are_deleted() -> None:
    fleet = Fleet()
    fleet.policy()
    fleet.node("a", taints=[{"key": "fleetwell.io/unproven", "effect": "NoSchedule"}])
    fleet.healthy("a")
    controller = Controller(fleet)

    def refuse() -> None:
        fleet.beat("a")
        for path, it in list(fleet.api.objects.items()):
            if "/nodeoperations/" in path and "status" not in it:
                fleet.api.edit(path, lambda one: one.update(status={"phase": "Refused"}))

    for _ in range(20):
        await controller.run(3600, each=refuse, by=60)
        await controller.chores.prune()
    kept = [int(it["metadata"]["name"].rpartition("-p")[2]) for it in fleet.all("nodeoperations")]
    assert len(kept) <= 51
    newest = fleet.incident()["status"]["proofs"][-1]["number"]
    assert newest > 100
    assert max(kept) == newest
