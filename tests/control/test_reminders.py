"""What waits for a person is said again, for as long as it waits."""

from __future__ import annotations

from control.ground import Controller, Fleet
from control.test_recovered_in_time import proofs_pass


async def test_an_incident_that_waits_for_a_person_says_so_every_hour() -> None:
    fleet = Fleet()
    fleet.policy(rules=[{"name": "all", "faults": ["*"], "ladder": [{"remedy": "person"}]}])
    fleet.node("a")
    fleet.beat("a")
    fleet.bad("a")
    controller = Controller(fleet)
    await controller.run(30, each=fleet.beat_all)
    name = fleet.incident()["metadata"]["name"]
    assert fleet.phase() == "NeedsPerson"

    def said() -> tuple[int, int]:
        controller.chores.reminders.remind()
        texts = [text for about, _, text in fleet.events.seen if about in {name, "a"} and "waited for a person" in text]
        return len(texts), len(set(texts))

    assert said() == (0, 0)
    await controller.run(3600, each=fleet.beat_all, by=60)
    assert said() == (2, 1)
    assert said() == (2, 1)
    await controller.run(3600, each=fleet.beat_all, by=60)
    assert said() == (4, 2)
    assert "GpuFallenOffBus" in fleet.events.seen[-1][2]
    fleet.healthy("a")
    await controller.run(7200, each=lambda: proofs_pass(fleet), by=60)
    assert fleet.phase() == "Released"
    assert said() == (4, 2)
