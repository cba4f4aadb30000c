"""Takes what a job says about its own trouble, looks at the hardware because of it, and answers what was found.

What a job says is a hint. It makes the probes look now, and that is all: no word of it reaches triage, so a job can
neither condemn a node nor clear one. Who speaks is known before anything is done: over the network by a token that
Kubernetes made for a pod of this node and for nobody but us, over the socket by what the kernel says of its peer.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import msgspec
import structlog

from fleetwell.agent.allowance import Allowance
from fleetwell.agent.http import Peer, Request, Response
from fleetwell.agent.pods import pod_of
from fleetwell.api.node_health import NodeHealthStatus
from fleetwell.health.evidence import evidence
from fleetwell.health.vocabulary import Verdict
from fleetwell.kube.errors import KubeError
from fleetwell.kube.token_review import Bearer

log = structlog.get_logger(__name__)

PATH = "/v1/reports"
AUDIENCE = "fleetwell.io/job-reports"
"""The audience of a job's token: it is worth nothing at the API server, and no other token is worth anything here."""
FINDINGS_TOLD = 32
REVIEWED_FOR = 60.0
"""Seconds for which a token that was good is not asked about again; its pod may be gone for so long."""
TOKENS_KEPT = 256
WAITING = 16
"""Reports that wait for probes at one time; they share the looks."""


class Trouble(StrEnum):
    """What the job saw."""

    WORKER_DIED = "workerDied"
    HANG = "hang"
    SLOW = "slow"
    WRONG_RESULT = "wrongResult"


class Way(StrEnum):
    """How it was heard of."""

    HTTP = "http"
    SOCKET = "socket"
    MESSAGE = "terminationMessage"
    EXIT_CODE = "exitCode"


class JobReport(msgspec.Struct, frozen=True, rename="camel"):
    """What a job reports, in the body of a POST."""

    kind: Trouble
    job: Annotated[str, msgspec.Meta(max_length=253)] = ""
    rank: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None
    exit_code: Annotated[int, msgspec.Meta(ge=-255, le=255)] | None = None
    """Negative for a signal."""
    gpu: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The GPU that it was on, as the job knows it."""
    evidence: Annotated[str, msgspec.Meta(max_length=2048)] = ""


class ToldFinding(msgspec.Struct, frozen=True):
    """One finding, as the answer tells it."""

    fault: str
    component: str
    verdict: str
    recovery: str


class ReportAnswer(msgspec.Struct, frozen=True):
    """What the agent answers: what it knows of the node after the probes have looked."""

    verdict: Verdict
    looked: bool
    """False: the probes did not end in time, so that the verdict is what was known before, and never OK."""
    findings: tuple[ToldFinding, ...] = ()


class Reporter(msgspec.Struct, frozen=True):
    """Who reports: for the log, and as the key of its allowance."""

    way: Way
    name: str
    key: str


class JobReports:
    """The handlers of the two endpoints.

    :param review: asks whose token it is.
    :param look: has every probe look anew, and says whether that ended in time.
    :param status: gives what is known of the node.
    """

    def __init__(
        self,
        node: str,
        review: Callable[[str], Awaitable[Bearer | None]],
        look: Callable[[], Awaitable[bool]],
        status: Callable[[], NodeHealthStatus],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """By way, kind (empty where it was not read) and result."""
        self._node = node
        self._review = review
        self._look = look
        self._status = status
        self._monotonic = monotonic
        self._waiting = asyncio.Semaphore(WAITING)
        self._known: OrderedDict[bytes, tuple[Bearer, float]] = OrderedDict()
        # An unknown token costs the API server a review: from one address ten at once and then one a second, from all
        # of them together twice that. A known one costs looks: five at once, and then six a minute for each pod.
        self._reviews = Allowance(10, 1.0, monotonic=monotonic)
        self._all_reviews = Allowance(20, 0.5, monotonic=monotonic)
        self._reports = Allowance(5, 10.0, monotonic=monotonic)

    async def over_network(self, request: Request) -> Response:
        """Take a report whose sender shows a token."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return self._refused(Way.HTTP, HTTPStatus.UNAUTHORIZED, "show the pod's token for the audience " + AUDIENCE)
        digest = hashlib.sha256(token.encode()).digest()
        bearer = self._remembered(digest)
        if bearer is None:
            wait = self._reviews.take(request.peer.address) or self._all_reviews.take("")
            if wait:
                return self._too_many(Way.HTTP, wait)
            try:
                bearer = await self._review(token)
            except KubeError as error:
                log.warning("a job's token cannot be checked", why=str(error))
                return self._refused(
                    Way.HTTP, HTTPStatus.SERVICE_UNAVAILABLE, "the token cannot be checked now", Retry_After="5"
                )
        if bearer is None:
            return self._refused(
                Way.HTTP, HTTPStatus.UNAUTHORIZED, f"this is no valid token for the audience {AUDIENCE}"
            )
        if not bearer.pod_uid or bearer.node != self._node:
            why = f"the token is bound to no pod of node {self._node}; report to the agent of the pod's own node"
            return self._refused(Way.HTTP, HTTPStatus.FORBIDDEN, why)
        self._remember(digest, bearer)
        return await self._take(request, Reporter(Way.HTTP, bearer.pod, bearer.pod_uid))

    async def over_socket(self, request: Request) -> Response:
        """Take a report from a process of this machine."""
        return await self._take(request, reporter_of(request.peer))

    async def _take(self, request: Request, reporter: Reporter) -> Response:
        wait = self._reports.take(reporter.key)
        if wait:
            return self._too_many(reporter.way, wait)
        try:
            report = msgspec.json.decode(request.body, type=JobReport)
        except (ValueError, RecursionError) as error:
            return self._refused(reporter.way, HTTPStatus.BAD_REQUEST, f"this is no report: {evidence(str(error))}")
        if self._waiting.locked():
            return self._too_many(reporter.way, 1.0)
        answer = await self._looked(report, reporter)
        return Response(HTTPStatus.OK, msgspec.json.encode(answer), "application/json")

    async def heard(self, reporter: Reporter, report: JobReport) -> None:
        """Take a report whose sender waits for no answer."""
        if self._reports.take(reporter.key) or self._waiting.locked():
            self.not_heard(reporter.way, 1)
            return
        await self._looked(report, reporter)

    def not_heard(self, way: Way, number: int) -> None:
        """Count reports that were too many, and whose sender cannot be told so."""
        self.counts[way.value, "", _result(HTTPStatus.TOO_MANY_REQUESTS)] += number

    async def _looked(self, report: JobReport, reporter: Reporter) -> ReportAnswer:
        log.warning(
            "a job reports trouble; the probes look",
            reporter=evidence(reporter.name),
            source=reporter.way.value,
            kind=report.kind.value,
            job=evidence(report.job),
            rank=report.rank,
            exit_code=report.exit_code,
            gpu=evidence(report.gpu),
            evidence=evidence(report.evidence),
        )
        self.counts[reporter.way.value, report.kind.value, "taken"] += 1
        async with self._waiting:
            looked = await self._look()
        answer = self._answer(looked=looked)
        log.info("answered a job", reporter=evidence(reporter.name), verdict=answer.verdict.value, looked=looked)
        return answer

    def _answer(self, *, looked: bool) -> ReportAnswer:
        status = self._status()
        verdict = status.verdict if looked else max(status.verdict, Verdict.UNKNOWN, key=lambda one: one.severity)
        told = status.findings[:FINDINGS_TOLD]
        return ReportAnswer(
            verdict=verdict,
            looked=looked,
            findings=tuple(
                ToldFinding(one.fault, one.component, one.verdict.value, one.recovery.value) for one in told
            ),
        )

    def _refused(self, way: Way, status: HTTPStatus, why: str, **headers: str) -> Response:
        self.counts[way.value, "", _result(status)] += 1
        return Response.refusal(status, why, **headers)

    def _too_many(self, way: Way, wait: float) -> Response:
        seconds = str(int(wait) + 1)
        why = f"too many reports; the next one is taken in {seconds} s"
        return self._refused(way, HTTPStatus.TOO_MANY_REQUESTS, why, Retry_After=seconds)

    def _remembered(self, digest: bytes) -> Bearer | None:
        bearer, until = self._known.get(digest, (None, 0.0))
        return bearer if self._monotonic() < until else None

    def _remember(self, digest: bytes, bearer: Bearer) -> None:
        if self._remembered(digest) is not None:
            return  # Its time is counted from the review, not from its last use.
        self._known.pop(digest, None)
        self._known[digest] = (bearer, self._monotonic() + REVIEWED_FOR)
        if len(self._known) > TOKENS_KEPT:
            self._known.popitem(last=False)


def _result(status: HTTPStatus) -> str:
    return status.phrase.lower().replace(" ", "_")


def reporter_of(peer: Peer, proc: Path = Path("/proc")) -> Reporter:
    """Tell who is at the other end of a Unix socket: the pod whose cgroup it is in, else the user."""
    if peer.pid:
        uid = pod_of(proc, peer.pid)
        if uid:
            return Reporter(Way.SOCKET, f"pod {uid}, uid {peer.uid}, pid {peer.pid}", uid)
    return Reporter(Way.SOCKET, f"uid {peer.uid}, pid {peer.pid}", f"uid {peer.uid}")
