"""What incidents are called: never twice the same, and the same when asked for again."""

from __future__ import annotations

import msgspec
import pytest

from control.ground import CUSTOM, START, Controller, Fleet, health_path
from fleetwell.api.resources import NODE_HEALTHS
from fleetwell.control.wire import incident_name


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.policy()
    fleet.node("a")
    fleet.healthy("a")
    fleet.beat("a")
    return fleet


async def test_the_name_of_an_incident_that_is_gone_is_never_used_again(fleet: Fleet) -> None:
    """An agent does not look again at a name that it has brought to its end: the proof would never be answered."""
    controller = Controller(fleet)
    names = []
    for _ in range(2):
        fleet.bad("a")
        await controller.settle()
        names.append(fleet.incident()["metadata"]["name"])
        fleet.api.remove(f"{CUSTOM}/incidents/{names[-1]}")
        fleet.healthy("a")
        await controller.step(1)
    assert names[0] != names[1]


async def test_an_incident_whose_creation_gave_no_answer_is_adopted_and_not_made_twice(fleet: Fleet) -> None:
    controller = Controller(fleet)
    fleet.api.watchers.clear()  # nor has the watch shown it yet
    fleet.api.lost.append(("POST", "incidents"))
    fleet.bad("a")
    controller.picture.health_seen(NODE_HEALTHS.decode(msgspec.json.encode(fleet.api.objects[health_path("a")])))
    await controller.settle()
    await controller.step(3)
    assert len(fleet.api.sent("POST", "incidents")) == 2
    assert fleet.phase() == "Quarantined"


@pytest.mark.parametrize("name", ["a" * 219 + ".b" * 17, "n" * 253])
async def test_names_made_from_the_longest_node_names_are_names(name: str) -> None:
    made = incident_name(name, "uid", START)
    assert len(made) + len("-p1000") <= 253
    assert all(part and not part.startswith("-") and not part.endswith("-") for part in made.split("."))
