"""Each write of a whole story in turn is refused, lost, or the last thing that a controller does.

Whatever happens to one write, the machine is repaired once, nothing is forgotten, and nothing of ours is left on it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest

from control.ground import Controller, Fleet, node_path
from control.test_the_whole_story import Cluster
from fleetwell.kube.errors import Unreachable, from_response

MORE_WRITES_THAN_A_STORY_HAS = 60
AFTERWARDS = 4
"""Steps for which an ended story goes on: its marks come off, and nothing else may follow."""
ENDS = (["Released"], ["Replaced"])


class Fate(enum.Enum):
    """What becomes of one write."""

    REFUSED = 500
    CONFLICT = 409
    THROTTLED = 429
    LOST = "carried out, and the answer does not arrive"
    KILLED_BEFORE = "the controller is killed with the request in its hand"
    KILLED_AFTER = "the controller is killed before it hears the answer"


class Wire:
    """Stands between a fleet and its controller, and deals one write its fate."""

    def __init__(self, fleet: Fleet, number: int, fate: Fate) -> None:
        self.writes = 0
        self.dead = False
        self._send: Callable[..., Any] = fleet.api._send
        self._number = number
        self._fate = fate
        fleet.api._send = self.send  # type: ignore[method-assign]

    async def send(self, method: str, path: str, what: str, **more: Any) -> bytes:
        if self.dead:
            raise Unreachable(what, "a killed process sends nothing", sent=False)
        if method != "GET":
            self.writes += 1
        if method == "GET" or self.writes != self._number:
            answer: bytes = await self._send(method, path, what, **more)
            return answer
        self.dead = self._fate in {Fate.KILLED_BEFORE, Fate.KILLED_AFTER}
        if isinstance(self._fate.value, int):
            raise from_response(what, self._fate.value, {}, b"")
        if self._fate is not Fate.KILLED_BEFORE:
            await self._send(method, path, what, **more)
        raise Unreachable(what, "no answer", sent=True)


async def story(fleet: Fleet, number: int, fate: Fate, each: Callable[[], None], seconds: float) -> int:
    """Let the story run to its end with one write dealt its fate; gives how many writes it had."""
    wire, epoch = Wire(fleet, number, fate), 1
    controller = Controller(fleet)
    over = 0
    while over < AFTERWARDS and fleet.time.passed < seconds:
        each()
        over += 1 if [fleet.phase() for _ in fleet.all("incidents")] in ENDS else 0
        await controller.step(2)
        if wire.dead:
            controller.die()
            wire.dead, epoch = False, epoch + 1
            controller = Controller(fleet, epoch=epoch)
            await controller.loop.intents.claim()
    return wire.writes


def a_fleet() -> Fleet:
    fleet = Fleet()
    fleet.policy()
    fleet.working("a", "b", "c", "d")
    fleet.pod("rank-0", "a", owner="job")
    return fleet


@pytest.mark.parametrize("fate", Fate)
async def test_a_reboot_is_done_once_whatever_becomes_of_one_write(fate: Fate) -> None:
    for number in range(1, MORE_WRITES_THAN_A_STORY_HAS):
        fleet = a_fleet()
        cluster = Cluster(fleet)
        fleet.bad("a")
        writes = await story(fleet, number, fate, cluster.play, 150)
        seen = (number, fleet.phase(), cluster.rebooted, len(fleet.operations("Reboot")), fleet.taints("a"))
        assert seen == (number, "Released", 1, 1, [])
        assert fleet.annotations("a") == {}
        if number > writes:
            return
    raise AssertionError("the story has more writes than were tried")


@pytest.mark.parametrize("fate", Fate)
async def test_a_replacement_is_ordered_once_whatever_becomes_of_one_write(fate: Fate) -> None:
    for number in range(1, MORE_WRITES_THAN_A_STORY_HAS):
        fleet = a_fleet()
        cluster = Cluster(fleet)
        fleet.bad("a", "GpuRowRemapFailed", "replace")

        def play(fleet: Fleet = fleet, cluster: Cluster = cluster) -> None:
            cluster.play()
            if fleet.all("machinereplacements") and node_path("a") in fleet.api.objects:
                fleet.api.remove(node_path("a"))
                fleet.node("e")
                fleet.healthy("e")

        writes = await story(fleet, number, fate, play, 150)
        assert (number, fleet.phase(), len(fleet.all("machinereplacements"))) == (number, "Replaced", 1)
        if number > writes:
            return
    raise AssertionError("the story has more writes than were tried")
