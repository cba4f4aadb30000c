"""Asking a node's agent for something: once, on the boot it was decided for, and on what was known."""

from __future__ import annotations

import datetime as dt

import pytest

from control.ground import CUSTOM, START, Fleet, health_path, node_path
from fleetwell.api.node_operation import NodeOperationSpec, OperationKind
from fleetwell.control.effects.operate import cancel, operate
from fleetwell.control.effects.reach import Reach
from fleetwell.kube.errors import ServerError
from fleetwell.policy.instructions import CancelOperation, Operate

OPERATION = f"{CUSTOM}/nodeoperations/i-a1"
WANTED = Operate(
    name="i-a1",
    incident="i",
    incident_uid="i-uid",
    attempt=1,
    spec=NodeOperationSpec(
        kind=OperationKind.REBOOT,
        node_name="a",
        node_uid="a-uid",
        incident="i",
        operation_id="i-uid-a1",
        expected_boot_id="boot-1",
        deadline=START + dt.timedelta(minutes=20),
    ),
)


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.node("a")
    fleet.bad("a")
    at = START.isoformat()
    attempt = {"number": 1, "remedy": "reboot", "startedAt": at, "deadline": at}
    status = {"phase": "Remedying", "since": at, "timeline": {"opened": at}, "epoch": 1, "attempts": [attempt]}
    spec = {"kind": "Repair", "nodeName": "a", "nodeUID": "a-uid", "policy": "gpu"}
    fleet.api.put(f"{CUSTOM}/incidents/i", {"metadata": {"uid": "i-uid"}, "spec": spec, "status": status})
    return fleet


def made(fleet: Fleet) -> bool:
    return OPERATION in fleet.api.objects


async def test_the_operation_is_made_with_its_owner_and_the_doorbell_rung(fleet: Fleet) -> None:
    assert (await operate(fleet.reach(), WANTED)).settled
    owner = fleet.api.objects[OPERATION]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Incident", "i", "i-uid")
    assert fleet.api.objects[health_path("a")]["spec"] == {"operation": "i-a1"}
    assert fleet.events.reasons("a") == ["Reboot"]


async def test_asked_again_it_is_the_same_operation(fleet: Fleet) -> None:
    """S6."""
    await operate(fleet.reach(), WANTED)
    before = fleet.api.writes()
    assert (await operate(fleet.reach(), WANTED)).settled
    assert fleet.api.writes() == before


async def test_one_that_appears_between_read_and_write_is_adopted(fleet: Fleet) -> None:
    await operate(fleet.reach(), WANTED)
    saved = fleet.api.objects[OPERATION]
    fleet.api.remove(OPERATION)
    fleet.api.before.append(("POST", "nodeoperations", lambda: fleet.api.put(OPERATION, saved)))
    assert (await operate(fleet.reach(), WANTED)).settled


async def test_a_node_that_has_booted_since_is_not_rebooted(fleet: Fleet) -> None:
    """S2: a healthy node was rebooted for an old event."""
    fleet.api.edit(node_path("a"), lambda it: it["status"]["nodeInfo"].update(bootID="boot-2"))
    outcome = await operate(fleet.reach(), WANTED)
    assert not made(fleet)
    assert "has booted since" in outcome.detail


async def test_a_report_that_came_after_the_decision_makes_it_be_decided_again(fleet: Fleet) -> None:
    reach = fleet.reach()
    stale = Reach(
        client=reach.client,
        events=reach.events,
        clock=reach.clock,
        settings=reach.settings,
        epoch=1,
        health_version=lambda _: "0",
    )
    outcome = await operate(stale, WANTED)
    assert not made(fleet)
    assert "reported anew" in outcome.detail


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": {"phase": "Cleared"}}, "is over"),
        ({"status": {"epoch": 2}}, "later leader"),
        ({"spec": {"hold": {"by": "ada", "at": START.isoformat()}}}, "ada holds"),
        ({"status": {"attempts": []}}, "not under way any more"),
    ],
)
async def test_an_incident_that_no_longer_asks_for_it_gets_nothing(
    fleet: Fleet, change: dict[str, dict[str, object]], said: str
) -> None:
    def edit(incident: dict[str, dict[str, object]]) -> None:
        for part, fields in change.items():
            incident[part].update(fields)

    fleet.api.edit(f"{CUSTOM}/incidents/i", edit)
    outcome = await operate(fleet.reach(), WANTED)
    assert not made(fleet)
    assert said in outcome.detail


async def test_one_that_was_made_but_not_rung_for_is_looked_at_again_before_the_bell_is_rung(fleet: Fleet) -> None:
    """The bell is what begins it: a node that restarted between the object and the bell must not be rebooted."""
    fleet.api.failures.append(("PATCH", "nodehealths", 500, "InternalError"))
    with pytest.raises(ServerError):
        await operate(fleet.reach(), WANTED)
    assert made(fleet)
    fleet.api.edit(node_path("a"), lambda it: it["status"]["nodeInfo"].update(bootID="boot-2"))
    outcome = await operate(fleet.reach(), WANTED)
    assert "has booted since" in outcome.detail
    assert "operation" not in fleet.api.objects[health_path("a")]["spec"]


async def test_a_foreign_operation_of_the_same_name_is_left_alone(fleet: Fleet) -> None:
    await operate(fleet.reach(), WANTED)
    fleet.api.edit(OPERATION, lambda it: it["spec"].update(operationID="other"))
    fleet.api.edit(health_path("a"), lambda it: it["spec"].update(operation=""))
    outcome = await operate(fleet.reach(), WANTED)
    assert "another's" in outcome.detail
    assert fleet.api.objects[health_path("a")]["spec"]["operation"] == ""


async def test_without_an_agent_the_wait_is_named(fleet: Fleet) -> None:
    fleet.api.remove(health_path("a"))
    outcome = await operate(fleet.reach(), WANTED)
    assert not outcome.settled
    assert "no agent has ever reported" in outcome.detail


async def test_cancelling_writes_only_what_has_not_begun(fleet: Fleet) -> None:
    await operate(fleet.reach(), WANTED)
    assert (await cancel(fleet.reach(), CancelOperation(name="i-a1"))).settled
    assert fleet.api.objects[OPERATION]["spec"]["cancel"] is True

    def running(it: dict[str, dict[str, object]]) -> None:
        it["spec"]["cancel"] = False
        it["status"] = {"phase": "Running"}

    fleet.api.edit(OPERATION, running)
    outcome = await cancel(fleet.reach(), CancelOperation(name="i-a1"))
    assert outcome.settled
    assert "left to end" in outcome.detail
    assert fleet.api.objects[OPERATION]["spec"]["cancel"] is False


async def test_an_agent_that_begins_in_that_moment_wins_over_the_cancelling(fleet: Fleet) -> None:
    await operate(fleet.reach(), WANTED)
    begun = {"status": {"phase": "Running"}}
    fleet.api.before.append(("PATCH", "nodeoperations", lambda: fleet.api.edit(OPERATION, lambda it: it.update(begun))))
    outcome = await cancel(fleet.reach(), CancelOperation(name="i-a1"))
    assert not outcome.settled
    assert not fleet.api.objects[OPERATION]["spec"].get("cancel")
