"""What a job may say to its node's agent, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from fleetwell.agent.http import Peer, Request, Response
from fleetwell.agent.job_reports import REVIEWED_FOR, JobReports, Reporter, Way, reporter_of
from fleetwell.api.fields import from_epoch
from fleetwell.api.node_health import NodeFinding, NodeHealthStatus
from fleetwell.health.vocabulary import Clears, Recovery, Source, Verdict
from fleetwell.kube.errors import Unreachable
from fleetwell.kube.token_review import Bearer

NODE = "gpu-1"
MINE = "mine"
DIED = {"kind": "workerDied", "rank": 3, "exitCode": -11, "evidence": "CUDA error"}
HERE = Bearer(username="system:serviceaccount:ml:default", pod="ml/train-0", pod_uid="u0", node=NODE)
LOST = NodeFinding(
    fault="GpuLost",
    component="gpu/GPU-1",
    verdict=Verdict.BAD,
    recovery=Recovery.REBOOT,
    source=Source.SNAPSHOT,
    probe="nvml",
    clears=Clears.BOOT,
    first_seen=from_epoch(1),
    last_seen=from_epoch(2),
)


class Ground:
    """An agent whose probes find what the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tokens: dict[str, Bearer | Exception | None] = {MINE: HERE}
        self.reviewed: list[str] = []
        self.looks = 0
        self.in_time = True
        self.found = NodeHealthStatus(verdict=Verdict.OK)
        self.status = NodeHealthStatus(verdict=Verdict.OK)
        self.reports = JobReports(NODE, self.review, self.look, lambda: self.status, monotonic=lambda: self.now)

    async def review(self, token: str) -> Bearer | None:
        self.reviewed.append(token)
        bearer = self.tokens.get(token)
        if isinstance(bearer, Exception):
            raise bearer
        return bearer

    async def look(self) -> bool:
        self.looks += 1
        self.status = self.found
        return self.in_time

    async def post(self, body: Any = DIED, token: str = MINE, address: str = "10.0.0.1") -> Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return await self.reports.over_network(Request("POST", "/v1/reports", headers, raw, Peer(address=address)))


@pytest.fixture
def ground() -> Ground:
    return Ground()


async def test_a_report_makes_the_probes_look_and_is_answered_with_what_they_found(ground: Ground) -> None:
    ground.found = NodeHealthStatus(verdict=Verdict.BAD, findings=(LOST,))
    answer = await ground.post()
    assert answer.status is HTTPStatus.OK
    assert json.loads(answer.body) == {
        "verdict": "BAD",
        "looked": True,
        "findings": [{"fault": "GpuLost", "component": "gpu/GPU-1", "verdict": "BAD", "recovery": "reboot"}],
    }
    assert ground.looks == 1
    assert ground.reports.counts == {("http", "workerDied", "taken"): 1}


async def test_a_report_by_itself_condemns_nothing(ground: Ground) -> None:
    answer = await ground.post({**DIED, "evidence": "Xid 79, GPU has fallen off the bus"})
    assert json.loads(answer.body) == {"verdict": "OK", "looked": True, "findings": []}


async def test_probes_that_do_not_end_in_time_are_no_pass(ground: Ground) -> None:
    ground.in_time = False
    assert json.loads((await ground.post()).body) == {"verdict": "UNKNOWN", "looked": False, "findings": []}
    ground.found = NodeHealthStatus(verdict=Verdict.BAD)
    assert json.loads((await ground.post()).body)["verdict"] == "BAD"


@pytest.mark.parametrize("token", ["", "unknown"])
async def test_without_a_good_token_nothing_looks(ground: Ground, token: str) -> None:
    assert (await ground.post(token=token)).status is HTTPStatus.UNAUTHORIZED
    assert ground.looks == 0


@pytest.mark.parametrize(
    "bearer",
    [
        Bearer(username=HERE.username, pod="ml/train-0", pod_uid="u0", node="gpu-2"),
        Bearer(username=HERE.username, pod="ml/train-0", pod_uid="u0"),
        Bearer(username=HERE.username, node=NODE),
    ],
)
async def test_a_pod_of_another_node_is_sent_away(ground: Ground, bearer: Bearer) -> None:
    ground.tokens["other"] = bearer
    answer = await ground.post(token="other")
    assert answer.status is HTTPStatus.FORBIDDEN
    assert b"the pod's own node" in answer.body
    assert ground.looks == 0


async def test_while_tokens_cannot_be_checked_the_job_is_asked_to_come_again(ground: Ground) -> None:
    ground.tokens["mine"] = Unreachable("POST tokenreviews", "no route", sent=False)
    answer = await ground.post()
    assert (answer.status, answer.headers["Retry-After"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "5")
    assert ground.looks == 0


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind": "workerDied", "of nobody": ' + b"[" * 4000,
        b"",
        b"\xff",
        b"[]",
        {},
        {"kind": "condemn"},
        {**DIED, "rank": -1},
        {**DIED, "exitCode": 10**30},
        {**DIED, "evidence": "x" * 2049},
        {**DIED, "gpu": 7},
    ],
)
async def test_what_is_no_report_is_refused(ground: Ground, body: Any) -> None:
    assert (await ground.post(body)).status is HTTPStatus.BAD_REQUEST
    assert ground.looks == 0


async def test_fields_of_later_versions_are_let_pass(ground: Ground) -> None:
    assert (await ground.post({**DIED, "mood": "bad"})).status is HTTPStatus.OK


async def test_a_pod_may_report_a_few_times_and_then_has_to_wait(ground: Ground) -> None:
    answers = [await ground.post() for _ in range(6)]
    assert [answer.status for answer in answers[:5]] == [HTTPStatus.OK] * 5
    assert answers[5].status is HTTPStatus.TOO_MANY_REQUESTS
    assert answers[5].headers["Retry-After"] == "11"
    ground.tokens["other"] = Bearer(username="u", pod="ml/train-1", pod_uid="u1", node=NODE)
    assert (await ground.post(token="other")).status is HTTPStatus.OK
    ground.now = 10.0
    assert (await ground.post()).status is HTTPStatus.OK


async def test_a_good_token_is_asked_about_once_a_minute_and_not_longer(ground: Ground) -> None:
    await ground.post()
    ground.now = REVIEWED_FOR - 1
    await ground.post()
    assert ground.reviewed == ["mine"]
    ground.now = REVIEWED_FOR
    await ground.post()
    assert ground.reviewed == ["mine", "mine"]


async def test_a_flood_of_bad_tokens_costs_the_api_server_little_and_shuts_no_known_pod_out(ground: Ground) -> None:
    await ground.post()
    answers = [await ground.post(token=f"guess-{number}", address=f"10.0.1.{number}") for number in range(200)]
    assert len(ground.reviewed) <= 20
    assert answers[-1].status is HTTPStatus.TOO_MANY_REQUESTS
    assert (await ground.post()).status is HTTPStatus.OK


async def test_reports_that_wait_for_the_same_probes_are_bounded(ground: Ground) -> None:
    begun = asyncio.Event()

    async def look() -> bool:
        await begun.wait()
        return True

    ground.reports._look = look
    for number in range(17):
        ground.tokens[str(number)] = Bearer(username="u", pod="p", pod_uid=str(number), node=NODE)
    ground.now = 1000.0
    waiting = []
    for number in range(17):
        ground.now += 1.0
        waiting.append(asyncio.ensure_future(ground.post(token=str(number), address=str(number))))
        await asyncio.sleep(0)
    begun.set()
    answers = [await each for each in waiting]
    assert [answer.status for answer in answers] == [HTTPStatus.OK] * 16 + [HTTPStatus.TOO_MANY_REQUESTS]


async def test_over_the_socket_the_kernel_says_who_reports(ground: Ground) -> None:
    request = Request("POST", "/v1/reports", {}, json.dumps(DIED).encode(), Peer(uid=1000))
    assert (await ground.reports.over_socket(request)).status is HTTPStatus.OK
    assert ground.reviewed == []


@pytest.mark.parametrize(
    ("cgroup", "key"),
    [
        (
            "0::/kubepods.slice/kubepods-pod5f0c9f5e_1f2a_4b7e_9d2a_6d1b5f3c2a10.slice/cri-containerd-ab.scope",
            "5f0c9f5e-1f2a-4b7e-9d2a-6d1b5f3c2a10",
        ),
        ("0::/kubepods/burstable/pod5f0c9f5e-1f2a-4b7e-9d2a-6d1b5f3c2a10/ab", "5f0c9f5e-1f2a-4b7e-9d2a-6d1b5f3c2a10"),
        ("0::/user.slice", "uid 1000"),
        (None, "uid 1000"),
    ],
)
def test_the_pod_of_a_process_is_read_from_its_cgroup(tmp_path: Path, cgroup: str | None, key: str) -> None:
    if cgroup is not None:
        (tmp_path / "42").mkdir()
        (tmp_path / "42/cgroup").write_text(cgroup)
    assert reporter_of(Peer(pid=42, uid=1000), tmp_path).key == key


def test_a_process_of_a_namespace_that_we_do_not_see_is_known_by_its_user() -> None:
    assert reporter_of(Peer(pid=0, uid=7)) == Reporter(Way.SOCKET, name="uid 7, pid 0", key="uid 7")
