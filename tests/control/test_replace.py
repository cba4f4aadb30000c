"""Ordering a replacement, and restarting a workload."""

from __future__ import annotations

import dataclasses
import datetime as dt
import operator

import pytest

from control.ground import CUSTOM, START, Fleet, node_path, pod_path
from fleetwell.api.policy import Template
from fleetwell.control.effects.replace import replace
from fleetwell.control.effects.restart import restart
from fleetwell.control.settings import Settings, TemplateKind
from fleetwell.policy.instructions import OrderReplacement, RestartPods
from fleetwell.policy.view import NOT_ORDERED

ORDER = "/apis/janitor.example/v1/machinereplacements/i-a1"
WANTED = OrderReplacement(
    name="i-a1",
    attempt=1,
    begin=True,
    node="a",
    uid="a-uid",
    provider_id="lab://a",
    incident="i",
    incident_uid="i-uid",
    boot_id="boot-1",
    template=Template(api_version="janitor.example/v1", kind="MachineReplacement"),
)


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.node("a", taints=[{"key": "fleetwell.io/quarantine", "effect": "NoSchedule"}])
    fleet.api.edit(node_path("a"), lambda it: it["metadata"].update(annotations={"fleetwell.io/marks": "taint"}))
    at = START.isoformat()
    attempt = {"number": 1, "remedy": "replace", "startedAt": at, "deadline": at}
    status = {"phase": "Remedying", "since": at, "timeline": {"opened": at}, "epoch": 1, "attempts": [attempt]}
    spec = {"kind": "Repair", "nodeName": "a", "nodeUID": "a-uid", "policy": "gpu"}
    fleet.api.put(f"{CUSTOM}/incidents/i", {"metadata": {"uid": "i-uid"}, "spec": spec, "status": status})
    return fleet


async def test_the_order_is_followed_by_the_field_that_the_policy_names(fleet: Fleet) -> None:
    outcome = await replace(fleet.reach(), WANTED)
    assert outcome.replacement is not None
    assert (outcome.settled, outcome.replacement.state) == (False, "Ordered")
    states = []
    for said in ("Working", "Completed", "Failed"):
        status = {"status": {"phase": said}}
        fleet.api.edit(ORDER, operator.methodcaller("update", status))
        outcome = await replace(fleet.reach(), WANTED)
        assert outcome.replacement is not None
        states.append(outcome.replacement.state)
    assert states == ["Ordered", "Succeeded", "Failed"]
    assert len(fleet.api.sent("POST", "machinereplacements")) == 1


async def test_one_that_must_not_begin_is_only_looked_for(fleet: Fleet) -> None:
    looking = dataclasses.replace(WANTED, begin=False)
    outcome = await replace(fleet.reach(), looking)
    assert outcome.replacement is not None
    assert outcome.replacement.state == NOT_ORDERED
    assert not fleet.api.sent("POST", "machinereplacements")
    await replace(fleet.reach(), WANTED)
    outcome = await replace(fleet.reach(), looking)
    assert outcome.replacement is not None
    assert outcome.replacement.state == "Ordered"


async def test_a_kind_that_is_not_on_the_allow_list_is_refused_with_the_flag_that_allows_it(fleet: Fleet) -> None:
    outcome = await replace(fleet.reach(settings=Settings()), WANTED)
    assert outcome.replacement is not None
    assert outcome.replacement.state == "Failed"
    assert "--replacement-kind janitor.example/v1/MachineReplacement" in outcome.detail
    assert fleet.api.writes() == []


@pytest.mark.parametrize("why", ["boot", "mark", "gone", "over"])
async def test_nothing_is_ordered_when_the_ground_is_gone(fleet: Fleet, why: str) -> None:
    if why == "boot":
        fleet.api.edit(node_path("a"), lambda it: it["status"]["nodeInfo"].update(bootID="boot-2"))
    if why == "mark":
        fleet.api.edit(node_path("a"), lambda it: it["metadata"].update(annotations={}))
    if why == "gone":
        fleet.node("a", uid="other")
    if why == "over":
        fleet.api.remove(f"{CUSTOM}/incidents/i")
    await replace(fleet.reach(), WANTED)
    assert ORDER not in fleet.api.objects


async def test_an_object_that_somebody_else_made_under_the_name_is_no_order_of_ours(fleet: Fleet) -> None:
    fleet.api.put(ORDER, {"metadata": {}, "spec": {"nodeUID": "other"}})
    outcome = await replace(fleet.reach(), WANTED)
    assert outcome.replacement is not None
    assert outcome.replacement.state == "Failed"
    assert "left alone" in outcome.detail


def test_kinds_are_read_from_the_command_line() -> None:
    assert TemplateKind.parse("a.b/v1/Fix") == TemplateKind("a.b", "v1", "Fix", "fixs")
    assert TemplateKind.parse("a.b/v1/Fix=fixes").plural == "fixes"
    with pytest.raises(ValueError, match="GROUP/VERSION/KIND"):
        TemplateKind.parse("v1/Fix")


async def test_only_pods_that_use_gpus_and_began_before_the_attempt_are_restarted(fleet: Fleet) -> None:
    gpus = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    fleet.pod("trains", "a", owner="job", containers=gpus)
    fleet.pod("serves", "a", owner="web")
    before = START + dt.timedelta(seconds=10)
    wanted = RestartPods(node="a", uid="a-uid", incident="i", component="gpu/1", started_before=before)
    assert not (await restart(fleet.reach(), wanted)).settled
    fleet.api.remove(pod_path("trains"))
    fleet.time.passed = 20
    fleet.pod("trains-again", "a", owner="job", containers=gpus)
    assert (await restart(fleet.reach(), wanted)).settled
    assert [path.split("/")[-2] for path in fleet.api.sent("POST", "/eviction")] == ["trains"]
