"""S9, S48: what needs nobody's leave. Giving a node back always goes through, and what is lost already is repaired.

In the field a tripped breaker also stopped the way back (NVSentinel #1852), and a budget that counted what was lost
already kept it from ever being repaired: too much was broken, so nothing might be.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from fleetwell.api.incident import Attempt, IncidentStatus, Phase
from fleetwell.api.resources import Incident
from fleetwell.lab.nvml_state import RecoveryAction
from scenarios.field import Field

pytestmark = pytest.mark.controlplane

NODES = 5
CONTROLLER = False
AGENT_ARGUMENTS = ("--nvml-interval", "1s", "--boot-grace", "2s", "--heartbeat", "2s")
SILENT_AFTER = ("--agent-stale-after", "15")

PROCEED = {"deadline": "1m", "onDeadline": "Proceed"}
REBOOT = {"remedy": "reboot", "deadline": "1m"}
RELEASE = {"quiet": "1s", "settleDeadline": "1m"}


async def status(field: Field, node: str) -> IncidentStatus:
    incident = await field.incident(node)
    assert incident is not None
    assert incident.status is not None
    return incident.status


async def given_back(field: Field, node: str) -> bool:
    return await field.phase(node) is Phase.RELEASED and not await field.quarantined(node)


async def held_for(field: Field, node: str) -> str:
    incident = await field.incident(node)
    hold = incident.status.hold if incident is not None and incident.status is not None else None
    return hold.reason if hold is not None else ""


@pytest_asyncio.fixture
async def fleet(field: Field) -> Field:
    """The lab with its controller started."""
    if field.lab.process("controller") is None:
        await field.start_controller(*SILENT_AFTER)
    return field


@pytest.mark.parametrize(
    ("node", "barred", "reason"),
    [
        ("gpu-1", {"mode": "Paused"}, "Paused"),
        ("gpu-2", {"mode": "DryRun"}, "DryRun"),
        ("gpu-3", {"budget": {"maxUnavailablePercent": 0}}, "Budget"),
    ],
    ids=["paused", "in dry run", "out of budget"],
)
async def test_a_recovered_node_is_proven_and_given_back_although_nothing_new_may_begin(
    fleet: Field, node: str, barred: dict[str, Any], reason: str
) -> None:
    field = fleet
    stays = {"name": "stays", "faults": ["*"], "drain": {"after": "1h"}, "ladder": [REBOOT]}
    common: dict[str, Any] = {"rules": [stays], "budget": {"maxUnavailablePercent": 100}, "release": RELEASE}
    await field.policy(**common)
    await field.driver_asks(node, RecoveryAction.NODE_REBOOT)
    await field.until(f"{node} is quarantined", lambda: field.quarantined(node))

    await field.policy(**(common | barred))
    # The bar is in force once it holds another node, which is as bad and is not taken.
    await field.driver_asks("gpu-5", RecoveryAction.NODE_REBOOT)

    async def barred_now() -> bool:
        return await held_for(field, "gpu-5") == reason

    await field.until(f"gpu-5 is held for {reason}", barred_now)
    await field.driver_asks(node, RecoveryAction.NONE)
    await field.until(f"{node} is given back", lambda: given_back(field, node))
    after = await status(field, node)
    assert after.timeline.proved is not None
    assert not await field.quarantined("gpu-5")

    await field.driver_asks("gpu-5", RecoveryAction.NONE)

    async def cleared() -> bool:
        return await field.phase("gpu-5") is Phase.CLEARED

    await field.until("gpu-5 is well again", cleared)


async def test_more_nodes_lost_than_the_budget_allows_are_repaired_at_the_pace_and_a_working_one_waits(
    fleet: Field,
) -> None:
    field = fleet
    await field.policy(
        rules=[
            {
                "name": "silent",
                "faults": ["AgentSilent"],
                "tolerate": "1s",
                "drain": PROCEED,
                "ladder": [{"remedy": "replace", "deadline": "1m"}],
            },
            {"name": "else", "faults": ["*"], "tolerate": "1s", "drain": PROCEED, "ladder": [REBOOT]},
        ],
        budget={"maxUnavailablePercent": 100, "maxUnavailable": 1},
        pace={"maxConcurrent": 1},
        release=RELEASE,
    )
    # gpu-4 falls off the bus and takes the whole budget; by the time its work has gone, more is lost than the limit.
    await field.run_pod("slow", node="gpu-4", script="trap 'sleep 16; exit 0' TERM; sleep 3600 & wait", grace=40)
    await field.until("the pod runs", lambda: field.running("slow"))
    await field.inject("gpu-lost", "gpu-4", 0)
    await field.until("gpu-4 is quarantined", lambda: field.quarantined("gpu-4"))
    for lost in ("gpu-1", "gpu-2"):
        await field.ask("power-off", node=lost)
    await field.inject("gpu-lost", "gpu-3", 0)

    async def waits() -> bool:
        return await held_for(field, "gpu-3") == "Budget"

    await field.until("gpu-3, which still works, is held by the budget", waits)
    repaired = [await until_ended(field, node) for node in ("gpu-4", "gpu-1", "gpu-2")]
    assert [incident.status and incident.status.phase for incident in repaired] == [
        Phase.RELEASED,
        Phase.REPLACED,
        Phase.REPLACED,
    ]
    await field.until("gpu-3's turn has come", lambda: field.quarantined("gpu-3"))

    ends = [incident.status.timeline.ended for incident in repaired if incident.status is not None]
    taken = (await status(field, "gpu-3")).timeline.quarantined
    assert taken is not None
    assert all(end is not None and end <= taken for end in ends)
    assert_one_at_a_time([it for incident in repaired if incident.status for it in incident.status.attempts])
    assert await field.incidents("gpu-5") == [] or (await status(field, "gpu-5")).timeline.quarantined is None


async def until_ended(field: Field, node: str) -> Incident:
    async def ended() -> Incident | None:
        incident = await field.incident(node)
        over = incident is not None and incident.status is not None and incident.status.phase.ended
        return incident if over else None

    found = await field.until(f"the incident of {node} ends well", ended, 80)
    assert found is not None
    return found


def assert_one_at_a_time(attempts: list[Attempt]) -> None:
    attempts.sort(key=lambda attempt: attempt.started_at)
    for before, after in pairwise(attempts):
        assert before.ended_at is not None
        assert before.ended_at <= after.started_at, f"{before} and {after} ran at once, and the pace is 1"
