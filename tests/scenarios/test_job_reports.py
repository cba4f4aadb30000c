"""Jobs that report trouble to their node's agent, with tokens that a real API server made and reviews."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from fleetwell.agent.job_reports import AUDIENCE
from fleetwell.kube.bodies import BoundTo
from fleetwell.kube.resource import PODS
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.workloads import IMAGE
from scenarios.field import Field

pytestmark = pytest.mark.controlplane
NODES = 2
CONTROLLER = False
AGENT_ARGUMENTS = (
    *("--nvml-interval", "1h", "--sysfs-interval", "1h"),
    *("--report-socket", "$(FLEETWELL_HOST_ROOT)/run/fleetwell/reports.sock"),
)
"""So that no probe looks by itself while a test runs."""
DIED = {"kind": "workerDied", "job": "run-1", "rank": 0, "exitCode": -11, "evidence": "CUDA error"}


@pytest_asyncio.fixture
async def pod(field: Field) -> BoundTo:
    """A pod that runs on gpu-1."""
    container = {"name": "train", "image": IMAGE, "command": ["sleep", "infinity"]}
    await field.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train-0", "namespace": "default"},
            "spec": {"nodeName": "gpu-1", "containers": [container], "terminationGracePeriodSeconds": 1},
        }
    )
    async with asyncio.timeout(30):
        while (found := await field.client.get(PODS, "train-0", "default")).status.phase != "Running":
            await asyncio.sleep(0.2)
    return BoundTo("Pod", found.metadata.name, found.metadata.uid)


async def token(field: Field, pod: BoundTo | None, *audiences: str) -> str:
    return await field.client.create_token("default", "default", bound_to=pod, audiences=audiences)


async def ask(field: Field, node: str, method: str, path: str, shown: str = "") -> tuple[int, bytes]:
    addresses = (await field.node(node)).status.addresses
    address = next(one.address for one in addresses if one.type == "InternalIP")
    headers = {"Authorization": f"Bearer {shown}"}
    url = f"http://{address}:{urlsplit(field.lab.plane.url).port}{path}"
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.request(method, url, json=DIED, headers=headers, timeout=timeout) as answer:
        return answer.status, await answer.read()


async def report(field: Field, shown: str, node: str = "gpu-1") -> tuple[int, Any]:
    status, body = await ask(field, node, "POST", "/v1/reports", shown)
    return status, msgspec.json.decode(body) if status == 200 else body.decode()


async def test_a_report_finds_what_no_probe_had_looked_for_yet(field: Field, pod: BoundTo) -> None:
    shown = await token(field, pod, AUDIENCE)
    assert await report(field, shown) == (200, {"verdict": "OK", "looked": True, "findings": []})
    hardware = Hardware(field.lab.site.node("gpu-1").host)
    with hardware.update() as state:
        state.gpus[2].lasting.rows_failed = True
    began = time.monotonic()
    status, answer = await report(field, shown)
    assert time.monotonic() - began < 20
    assert (status, answer["verdict"], answer["looked"]) == (200, "BAD", True)
    assert [one["fault"] for one in answer["findings"]] == ["GpuRowRemapFailed"]
    assert answer["findings"][0]["component"] == f"gpu/{hardware.state.gpus[2].uuid}"
    status, metrics = await ask(field, "gpu-1", "GET", "/metrics")
    assert status == 200
    assert b'fleetwell_agent_job_reports_total{kind="workerDied",result="taken",source="http"} 2.0' in metrics
    assert b'fleetwell_agent_findings{fault="GpuRowRemapFailed",verdict="BAD"} 1.0' in metrics
    assert b"fleetwell_agent_heartbeat_age_seconds" in metrics


async def test_only_a_token_of_our_audience_and_of_a_pod_of_this_node_is_taken(field: Field, pod: BoundTo) -> None:
    assert (await report(field, await token(field, pod)))[0] == 401
    assert (await report(field, await token(field, None, AUDIENCE)))[0] == 403
    status, why = await report(field, await token(field, pod, AUDIENCE), node="gpu-2")
    assert status == 403
    assert "agent of the pod's own node" in why


async def test_over_the_socket_a_process_of_the_machine_reports_without_a_token(field: Field) -> None:
    socket = field.lab.site.node("gpu-2").host / "run/fleetwell/reports.sock"
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
        async with session.post("http://agent/v1/reports", json=DIED) as answer:
            assert await answer.json() == {"verdict": "OK", "looked": True, "findings": []}
        async with session.get("http://agent/metrics") as answer:
            assert answer.status == 404


async def taken(field: Field, node: str, source: str) -> float:
    """How many reports of one source the agent has taken, by its own count."""
    _, metrics = await ask(field, node, "GET", "/metrics")
    line = f'fleetwell_agent_job_reports_total{{kind="workerDied",result="taken",source="{source}"}} '.encode()
    return float(metrics.partition(line)[2].split()[0]) if line in metrics else 0.0


async def looks(field: Field, node: str) -> float:
    """How often NVML was looked at: by itself once an hour here."""
    _, metrics = await ask(field, node, "GET", "/metrics")
    line = b'fleetwell_agent_probe_looks_total{outcome="answer",source="nvml"} '
    return float(metrics.partition(line)[2].split()[0]) if line in metrics else 0.0


async def test_a_job_that_only_leaves_a_termination_message_is_heard(field: Field) -> None:
    node = "gpu-2"
    before = await taken(field, node, "terminationMessage")
    hardware = Hardware(field.lab.site.node(node).host)
    word = {"reason": "failure", "rank": 0, "code": -11, "cause": "was killed by SIGSEGV", "evidence": "CUDA error"}
    with hardware.update() as state:
        state.gpus[3].lasting.rows_failed = True
    script = f"echo '{msgspec.json.encode(word).decode()}' > $FLEETWELL_TERMINATION_LOG; sleep 12; exit 1"
    await field.run_pod("silent-job", node=node, script=script)

    async def heard() -> bool:
        return await taken(field, node, "terminationMessage") == before + 1

    async def found() -> bool:
        return any(one.fault == "GpuRowRemapFailed" for one in (await field.health(node)).status.findings)

    await field.until("the message was taken as a report", heard, 30.0)
    await field.until("the look found the fault", found, 20.0)


async def test_a_job_that_only_ends_with_a_code_is_heard_and_makes_the_probes_look(field: Field) -> None:
    node = "gpu-1"
    hardware = Hardware(field.lab.site.node(node).host)
    await field.until("the node offers its GPUs", lambda: offers_gpus(field, node), 60.0)
    await field.run_pod("aborts", node=node, gpus=8, script="sleep 12; kill -ABRT $$$$")
    await field.until("the pod runs", lambda: is_in_phase(field, "aborts", "Running"), 60.0)
    before, looked = await taken(field, node, "exitCode"), await looks(field, node)
    uuid = hardware.state.gpus[5].uuid
    with hardware.update() as state:
        state.gpus[5].lasting.rows_failed = True

    async def heard() -> bool:
        return await taken(field, node, "exitCode") == before + 1

    async def found() -> bool:
        findings = (await field.health(node)).status.findings
        return any(one.fault == "GpuRowRemapFailed" and one.component == f"gpu/{uuid}" for one in findings)

    assert not await found()
    assert await looks(field, node) == looked
    await field.until("the pod has ended", lambda: is_in_phase(field, "aborts", "Failed"), 60.0)
    (pod,) = [one for one in await field.pods() if one.metadata.name == "aborts"]
    (status,) = pod.status.container_statuses
    assert status.state.terminated is not None
    assert (status.state.terminated.exit_code, status.state.terminated.message) == (134, "")
    await field.until("the end was taken as a report", heard, 10.0)
    await field.until("the look found the fault", found, 20.0)
    await field.until("the probes looked twice", lambda: has_looked(field, node, looked + 2), 20.0)
    assert await taken(field, node, "exitCode") == before + 1
    assert await taken(field, node, "terminationMessage") == 0


async def is_in_phase(field: Field, name: str, phase: str) -> bool:
    return any(one.metadata.name == name and one.status.phase == phase for one in await field.pods())


async def offers_gpus(field: Field, node: str) -> bool:
    return (await field.node(node)).status.allocatable.get("nvidia.com/gpu") == "8"


async def test_an_end_that_somebody_wanted_makes_nobody_look(field: Field) -> None:
    node = "gpu-1"
    await field.until("the node offers its GPUs", lambda: offers_gpus(field, node), 60.0)
    before, looked = await taken(field, node, "exitCode"), await looks(field, node)
    await field.run_pod("ends", node=node, gpus=1, script="exit 143")
    await field.until("the pod has ended", lambda: is_in_phase(field, "ends", "Failed"), 60.0)
    await field.run_pod("aborts-without-gpu", node=node, script="kill -ABRT $$$$")
    await field.until("the pod has ended", lambda: is_in_phase(field, "aborts-without-gpu", "Failed"), 60.0)
    await field.run_pod("aborts-last", node=node, gpus=1, script="kill -SEGV $$$$")

    async def heard() -> bool:
        return await taken(field, node, "exitCode") > before

    await field.until("the last one was heard", heard, 60.0)
    assert await taken(field, node, "exitCode") == before + 1
    await field.until("the probes looked", lambda: has_looked(field, node, looked + 2), 20.0)


async def has_looked(field: Field, node: str, number: float) -> bool:
    return await looks(field, node) == number
