"""What an agent tells Prometheus of itself and of its node; see docs/metrics.md for what each figure means.

Everything but the durations is read from the agent when it is scraped, so nothing else in the agent knows about
metrics. Imported only where there is an endpoint: the library holds 1.5 MiB.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Protocol

import msgspec
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from fleetwell import __version__
from fleetwell.agent.http import Request, Response
from fleetwell.api.node_health import NodeHealthStatus
from fleetwell.health.vocabulary import Verdict

PATH = "/metrics"
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0)
"""Seconds; the default deadlines are 10 and 15."""
PROBE_STATES = ("OK", "CONFIG", "UNKNOWN", "BAD", "Blind", "Paused")


class Looks(msgspec.Struct, frozen=True, kw_only=True):
    """How the children of one source fared so far."""

    source: str
    outcomes: dict[str, int]
    """By how a look ended: ``answer``, ``hung``, ``crashed``, ``nonsense``, ``outstanding``."""
    abandoned: int
    outstanding: bool


class Watched(Protocol):
    """What is needed of the agent."""

    def looks(self) -> Iterable[Looks]:
        """Tell how the children fared."""

    def status(self) -> NodeHealthStatus:
        """Tell what is known of the node."""

    def publishes(self) -> tuple[int, int]:
        """Tell how often the API server took what was published, and how often it did not."""

    def kernel_dropped(self) -> int:
        """Tell how many records of the kernel log could not be read."""

    def kernel_missing(self) -> int:
        """Tell how many records of the kernel log were overwritten before they were read."""

    def last_heartbeat(self) -> float | None:
        """Tell when the Lease was last renewed, by the monotonic clock."""

    def reports(self) -> Iterable[tuple[str, str, str, int]]:
        """Tell how many job reports there were, by source, kind and result."""


class Metrics:
    """The agent's own registry and the handler of its endpoint."""

    def __init__(self, watched: Watched) -> None:
        # Else each source has one more series, with a time of birth that nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate it
        self._registry = CollectorRegistry()
        self._durations = Histogram(
            "fleetwell_agent_probe_duration_seconds",
            "How long one look of a probe's child took, from its start to its answer, its end or its deadline.",
            ("source",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_State(watched))
        ProcessCollector(registry=self._registry)

    def looked(self, source: str, seconds: float) -> None:
        """Note how long a look took."""
        self._durations.labels(source).observe(seconds)

    async def answer(self, request: Request) -> Response:
        """Answer a scrape."""
        del request
        return Response(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)


class _State:
    """Reads the agent at each scrape."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("fleetwell_agent_build", "Version of the agent.", {"version": __version__})
        yield from self._sources()
        yield from self._node()
        yield from self._connection()
        reports = CounterMetricFamily(
            "fleetwell_agent_job_reports",
            "Reports of jobs, and what became of them.",
            labels=("source", "kind", "result"),
        )
        for *labels, number in self._watched.reports():
            reports.add_metric(labels, number)
        yield reports

    def _sources(self) -> Iterator[Metric]:
        looks = CounterMetricFamily(
            "fleetwell_agent_probe_looks", "Looks of probes' children, by how they ended.", labels=("source", "outcome")
        )
        abandoned = CounterMetricFamily(
            "fleetwell_agent_children_abandoned", "Children that SIGKILL did not end.", labels=("source",)
        )
        outstanding = GaugeMetricFamily(
            "fleetwell_agent_child_outstanding", "1 while a child of this source runs or hangs.", labels=("source",)
        )
        for one in self._watched.looks():
            for outcome, number in sorted(one.outcomes.items()):
                looks.add_metric((one.source, outcome), number)
            abandoned.add_metric((one.source,), one.abandoned)
            outstanding.add_metric((one.source,), float(one.outstanding))
        yield from (looks, abandoned, outstanding)
        dropped = "Records of the kernel log that were not in the kernel's form."
        yield CounterMetricFamily(
            "fleetwell_agent_kernel_records_dropped", dropped, value=self._watched.kernel_dropped()
        )
        missing = "Records of the kernel log that its ring had overwritten before they were read."
        yield CounterMetricFamily(
            "fleetwell_agent_kernel_records_missing", missing, value=self._watched.kernel_missing()
        )

    def _node(self) -> Iterator[Metric]:
        status = self._watched.status()
        verdict = GaugeMetricFamily("fleetwell_agent_verdict", "1 for the node's verdict.", labels=("verdict",))
        for each in Verdict:
            verdict.add_metric((each.value,), float(status.verdict is each))
        probes = GaugeMetricFamily(
            "fleetwell_agent_probe_state", "1 for what a probe said at its last look.", labels=("probe", "state")
        )
        for probe in status.probes:
            for state in PROBE_STATES:
                probes.add_metric((probe.name, state), float(probe.state == state))
        counts: dict[tuple[str, str], int] = {}
        for finding in status.findings:
            key = (finding.fault, finding.verdict.value)
            counts[key] = counts.get(key, 0) + 1
        findings = GaugeMetricFamily(
            "fleetwell_agent_findings", "Findings that are open, by fault.", labels=("fault", "verdict")
        )
        for key, number in sorted(counts.items()):
            findings.add_metric(key, number)
        yield from (verdict, probes, findings)

    def _connection(self) -> Iterator[Metric]:
        written, failed = self._watched.publishes()
        publishes = CounterMetricFamily(
            "fleetwell_agent_publishes", "Attempts to write what changed to the API server.", labels=("result",)
        )
        publishes.add_metric(("written",), written)
        publishes.add_metric(("failed",), failed)
        yield publishes
        last = self._watched.last_heartbeat()
        if last is not None:
            yield GaugeMetricFamily(
                "fleetwell_agent_heartbeat_age_seconds",
                "Since the Lease was last renewed; the controller takes the agent for silent when it is too old.",
                value=time.monotonic() - last,
            )
