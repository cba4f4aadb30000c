"""Left to itself, with whatever is the matter, the ladder comes to rest where it says what it waits for.

The machine of the ladder does as it likes for a while; then the world stands still but for agents that obey, fail or
are silent, and hours pass. No episode may go round in circles, no node that is bad may be found at work, and none may
wear our mark for nobody.
"""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from fleetwell.api.incident import IncidentKind, Phase
from fleetwell.api.node_operation import OperationKind, OperationPhase
from fleetwell.api.policy import Mode
from fleetwell.policy.commands import released_by_person
from fleetwell.policy.evidence import said_now, standing
from fleetwell.policy.view import Episode, NodeView
from policy.builders import finding, policy
from policy.test_ladder_machine import Ladder
from policy.world import World

TURNS, APART = 50, dt.timedelta(minutes=10)
"""More than the longest way up the ladder takes with all its deadlines."""
WAITS = (Phase.NEEDS_PERSON, Phase.HELD)


class Resting(Ladder):
    @rule(answers=st.sampled_from(("obey", "fail", "silent")), enforced=st.booleans())
    def hours_pass(self, answers: str, enforced: bool) -> None:
        world = self._copied()
        if enforced:
            world.policies, world.problem = [policy()], ""
        for turn in range(TURNS):
            _agents(world, answers, turn)
            world.turn(APART)
        for episode in world.episodes.values():
            assert _rests(world, episode), (answers, world.story(episode.name))
        for here in world.nodes.values():
            assert _where_it_belongs(world, here), (answers, here)

    def _copied(self) -> World:
        world = copy.copy(self.world)
        for field in ("nodes", "episodes", "operations", "orders", "answers", "effects"):
            setattr(world, field, copy.copy(getattr(world, field)))
        world.obey = self._obey
        return world


def _agents(world: World, answers: str, turn: int) -> None:
    """Answer what is asked; a reboot mends nothing: what was found is found again."""
    waiting: list[Any] = [it for it in world.operations.values() if not it.status.phase.ended and not it.spec.cancel]
    for it in waiting if answers != "silent" else ():
        world.operation(it.name, OperationPhase.SUCCEEDED if answers == "obey" else OperationPhase.FAILED)
        here = world.nodes[it.spec.node_name]
        right = here.boot_id == it.spec.expected_boot_id
        if answers == "obey" and it.spec.kind is OperationKind.REBOOT and right:
            boot = f"{here.boot_id}-{turn}"
            known = here.health.findings if here.health is not None else ()
            world.boots(here.name, boot, *(finding(one.fault, boot=boot) for one in known))


def _rests(world: World, episode: Episode) -> bool:
    status, around = episode.status, world.around(episode)
    if status.phase.ended or status.phase in WAITS or status.hold is not None:
        return True
    if episode.spec.kind is IncidentKind.ADMISSION:
        return True  # a new node is tried again for as long as it stands there
    said = around.node is not None and standing(status.findings, around.node, world.policies[0].spec).live
    return status.phase is Phase.TOLERATING and not said  # a job's fault, which takes nothing out


def _where_it_belongs(world: World, here: NodeView) -> bool:
    mine = [it for it in world.episodes.values() if it.spec.node_uid == here.uid]
    waiting = [it for it in mine if not it.status.phase.ended]
    if here.our_taint:
        return bool(waiting)
    spec = world.policies[0].spec
    if spec.mode is not Mode.ENFORCE or not standing(said_now(here), here, spec).told:
        return True
    explained = any(it.status.hold is not None or it.status.phase in WAITS for it in waiting)
    return explained or any(it.status.phase is Phase.VETOED or released_by_person(it.status) for it in mine)


TestResting = Resting.TestCase
TestResting.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
