"""Our marks on a node, and nobody else's."""

from __future__ import annotations

import pytest

from control.ground import Fleet, node_path
from fleetwell.api.policy import QuarantineBy
from fleetwell.control.effects.mark import quarantine, restore
from fleetwell.policy.instructions import Quarantine, Restore

OURS = {"key": "fleetwell.io/quarantine", "effect": "NoSchedule"}
PERSONS = {"key": "team/testing", "effect": "NoSchedule", "value": "yes"}


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.node("a", taints=[PERSONS])
    return fleet


def wanted(by: QuarantineBy = QuarantineBy.TAINT, *, reserve: bool = True, incident: str = "i") -> Quarantine:
    return Quarantine(node="a", uid="a-uid", by=by, incident=incident, reserve=reserve)


async def test_a_taint_is_added_beside_those_of_others_and_taken_off_alone(fleet: Fleet) -> None:
    assert (await quarantine(fleet.reach(), wanted())).settled
    assert fleet.taints("a") == ["team/testing", "fleetwell.io/quarantine"]
    assert fleet.annotations("a")["karpenter.sh/do-not-repair"] == "true"

    assert (await restore(fleet.reach(), Restore(node="a", uid="a-uid", incident="i"))).settled
    assert fleet.api.objects[node_path("a")]["spec"]["taints"] == [PERSONS]
    assert fleet.annotations("a") == {}
    assert fleet.events.reasons("a") == ["Quarantined", "Restored"]


async def test_a_second_quarantine_writes_nothing(fleet: Fleet) -> None:
    await quarantine(fleet.reach(), wanted())
    before = fleet.api.writes()
    assert (await quarantine(fleet.reach(), wanted())).settled
    assert fleet.api.writes() == before


async def test_a_persons_cordon_stays_when_the_node_is_given_back(fleet: Fleet) -> None:
    fleet.api.edit(node_path("a"), lambda it: it["spec"].update(unschedulable=True))
    await quarantine(fleet.reach(), wanted(QuarantineBy.CORDON))
    await restore(fleet.reach(), Restore(node="a", uid="a-uid", incident="i"))
    assert fleet.api.objects[node_path("a")]["spec"]["unschedulable"] is True


async def test_our_own_cordon_is_taken_off(fleet: Fleet) -> None:
    await quarantine(fleet.reach(), wanted(QuarantineBy.CORDON))
    assert fleet.api.objects[node_path("a")]["spec"]["unschedulable"] is True
    assert fleet.taints("a") == ["team/testing"]
    await restore(fleet.reach(), Restore(node="a", uid="a-uid", incident="i"))
    assert "unschedulable" not in fleet.api.objects[node_path("a")]["spec"]


async def test_a_persons_do_not_disrupt_stays(fleet: Fleet) -> None:
    fleet.api.edit(
        node_path("a"), lambda it: it["metadata"].update(annotations={"karpenter.sh/do-not-disrupt": "true"})
    )
    await quarantine(fleet.reach(), wanted())
    await restore(fleet.reach(), Restore(node="a", uid="a-uid", incident="i"))
    assert fleet.annotations("a") == {"karpenter.sh/do-not-disrupt": "true"}


async def test_the_reservation_goes_when_the_machine_is_to_be_taken_away(fleet: Fleet) -> None:
    await quarantine(fleet.reach(), wanted())
    await quarantine(fleet.reach(), wanted(reserve=False))
    assert set(fleet.annotations("a")) == {"fleetwell.io/marks", "fleetwell.io/incident"}


async def test_an_edit_between_read_and_write_is_not_lost(fleet: Fleet) -> None:
    """S18, S23: a merge patch replaces the whole list of taints."""
    late = {"key": "late", "effect": "NoSchedule"}
    fleet.api.before.append(
        (
            "PATCH",
            "nodes/a",
            lambda: fleet.api.edit(node_path("a"), lambda it: it["spec"]["taints"].append(late)) and None,
        )
    )
    assert (await quarantine(fleet.reach(), wanted())).settled
    assert fleet.taints("a") == ["team/testing", "late", "fleetwell.io/quarantine"]


async def test_a_node_that_never_stops_changing_is_left_as_it_was_and_tried_again(fleet: Fleet) -> None:
    for _ in range(9):
        fleet.api.failures.append(("PATCH", "nodes/a", 409, "Conflict"))
    outcome = await quarantine(fleet.reach(), wanted())
    assert not outcome.settled
    assert "keeps changing" in outcome.detail
    assert fleet.taints("a") == ["team/testing"]


async def test_another_node_of_the_same_name_is_not_touched(fleet: Fleet) -> None:
    fleet.node("a", uid="other")
    assert (await quarantine(fleet.reach(), wanted())).settled
    assert fleet.api.writes() == []


async def test_the_marks_of_a_later_incident_are_not_taken_off(fleet: Fleet) -> None:
    """S38: cancelling an old episode cancelled a fresh quarantine."""
    await quarantine(fleet.reach(), wanted(incident="new"))
    outcome = await restore(fleet.reach(), Restore(node="a", uid="a-uid", incident="old"))
    assert outcome.settled
    assert "fleetwell.io/quarantine" in fleet.taints("a")


async def test_admission_takes_the_unproven_taint_off(fleet: Fleet) -> None:
    fleet.node("a", taints=[PERSONS, {"key": "fleetwell.io/unproven", "effect": "NoSchedule"}])
    await restore(fleet.reach(), Restore(node="a", uid="a-uid", incident="i"))
    assert fleet.taints("a") == ["team/testing"]
