"""The agent's metrics, scraped as Prometheus does."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetwell import __version__
from fleetwell.agent.http import HttpServer, Peer, Request
from fleetwell.agent.metrics import PATH, Looks, Metrics
from fleetwell.api.fields import from_epoch
from fleetwell.api.node_health import NodeFinding, NodeHealthStatus, ProbeStatus
from fleetwell.health.vocabulary import Clears, Recovery, Source, Verdict
from train.launching import free_port


class Watched:
    """An agent on a node with a broken GPU."""

    beat: float | None = None

    def looks(self) -> Iterable[Looks]:
        return [Looks(source="nvml", outcomes={"answer": 7, "hung": 1}, abandoned=1, outstanding=True)]

    def status(self) -> NodeHealthStatus:
        lost = [
            NodeFinding(
                fault="GpuLost",
                component=f"gpu/{number}",
                verdict=Verdict.BAD,
                recovery=Recovery.REBOOT,
                source=Source.SNAPSHOT,
                probe="nvml",
                clears=Clears.BOOT,
                first_seen=from_epoch(1),
                last_seen=from_epoch(2),
            )
            for number in range(2)
        ]
        probe = ProbeStatus(name="nvml", state="BAD", since=from_epoch(1))
        return NodeHealthStatus(verdict=Verdict.BAD, findings=tuple(lost), probes=(probe,))

    def publishes(self) -> tuple[int, int]:
        return 5, 2

    def kernel_dropped(self) -> int:
        return 3

    def kernel_missing(self) -> int:
        return 12

    def last_heartbeat(self) -> float | None:
        return self.beat

    def reports(self) -> Iterable[tuple[str, str, str, int]]:
        return [("exitCode", "workerDied", "taken", 4)]


async def scrape(metrics: Metrics) -> dict[tuple[str, frozenset[str]], float]:
    port = free_port()
    serving = asyncio.create_task(HttpServer({("GET", PATH): metrics.answer}).serve_tcp("127.0.0.1", port))
    text = b""
    async with asyncio.timeout(5):
        while not text:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
                text = await reader.read()
                writer.close()
            await asyncio.sleep(0.01)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    head, _, body = text.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert "text/plain" in head
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


async def test_everything_that_is_told_of_an_agent_is_scraped() -> None:
    metrics = Metrics(Watched())
    metrics.looked("nvml", 0.04)
    found = await scrape(metrics)
    assert found["fleetwell_agent_build_info", frozenset({__version__})] == 1
    assert found["fleetwell_agent_probe_duration_seconds_count", frozenset({"nvml"})] == 1
    assert found["fleetwell_agent_probe_duration_seconds_bucket", frozenset({"0.05", "nvml"})] == 1
    assert found["fleetwell_agent_probe_looks_total", frozenset({"nvml", "answer"})] == 7
    assert found["fleetwell_agent_probe_looks_total", frozenset({"nvml", "hung"})] == 1
    assert found["fleetwell_agent_probe_state", frozenset({"nvml", "BAD"})] == 1
    assert found["fleetwell_agent_probe_state", frozenset({"nvml", "OK"})] == 0
    assert found["fleetwell_agent_verdict", frozenset({"BAD"})] == 1
    assert found["fleetwell_agent_verdict", frozenset({"OK"})] == 0
    assert found["fleetwell_agent_findings", frozenset({"GpuLost", "BAD"})] == 2
    assert found["fleetwell_agent_children_abandoned_total", frozenset({"nvml"})] == 1
    assert found["fleetwell_agent_child_outstanding", frozenset({"nvml"})] == 1
    assert found["fleetwell_agent_kernel_records_dropped_total", frozenset()] == 3
    assert found["fleetwell_agent_kernel_records_missing_total", frozenset()] == 12
    assert found["fleetwell_agent_publishes_total", frozenset({"written"})] == 5
    assert found["fleetwell_agent_publishes_total", frozenset({"failed"})] == 2
    assert found["fleetwell_agent_job_reports_total", frozenset({"exitCode", "workerDied", "taken"})] == 4
    assert found["process_resident_memory_bytes", frozenset()] > 0


async def test_names_are_as_prometheus_has_them_and_all_are_explained() -> None:
    watched = Watched()
    watched.beat = time.monotonic()
    metrics = Metrics(watched)
    metrics.looked("nvml", 0.04)
    families = list(
        text_string_to_metric_families((await metrics.answer(Request("GET", PATH, {}, b"", Peer()))).body.decode())
    )
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(fleetwell_\w+)`", page, re.MULTILINE))
    told = set()
    for family in families:
        assert family.documentation.endswith(".")
        names = {re.sub("_(bucket|count|sum)$", "", sample.name) for sample in family.samples}
        assert all(name.endswith("_total") for name in names) == (family.type == "counter")
        assert not [
            name for name in names if re.search("(milli|micro|nano|kilo|mega|_ms|_mib|minute|hour|created)", name)
        ]
        told |= {name for name in names if not name.startswith("process_")}
    assert told == listed


async def test_the_heartbeats_age_is_told_once_there_was_one() -> None:
    watched = Watched()
    metrics = Metrics(watched)
    name = ("fleetwell_agent_heartbeat_age_seconds", frozenset[str]())
    assert name not in await scrape(metrics)
    watched.beat = time.monotonic() - 90
    assert (await scrape(metrics))[name] == pytest.approx(90, abs=10)
