"""Tells the agent of this node that a worker may have died of the hardware, and hears what the probes say then.

Where the agent is comes from the pod's environment. The agent looks because of a report and believes nothing of it, so
a report costs little and a wrong one does no harm: everything that hardware *can* cause is reported. It is sent from a
thread of its own that dies with the process, because a name server or a socket may hang for longer than we wait.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import structlog

from .blame import is_consequence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .protocol import Failure

URL = "FLEETWELL_REPORT_URL"
"""E.g. ``http://$(HOST_IP):9420``."""
TOKEN_FILE = "FLEETWELL_REPORT_TOKEN_FILE"  # noqa: S105 (the name of a variable)
SOCKET = "FLEETWELL_REPORT_SOCKET"
USUAL_TOKEN = "/var/run/secrets/fleetwell.io/token"  # noqa: S105 (a path)
PATH = "/v1/reports"
DEADLINE = 30.0
"""Seconds that an answer may take: two looks, each of which may hang up to its own deadline."""
SENDING = 2.0
"""Seconds that a launcher which leaves lets a report be sent."""
ANSWER_LIMIT = 64 * 1024
EVIDENCE_LIMIT = 1024
_SIGNALS = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGABRT}
_HARDWARE = re.compile(
    r"CUDA error|CUDA driver|cudaError|CUBLAS_STATUS|CUDNN_STATUS|CUFFT_|NCCL|NVML|\bECC\b|\bXid\b|HIP error"
    r"|fallen off the bus|no CUDA-capable device|No CUDA GPUs|unspecified launch failure|illegal memory access",
    re.IGNORECASE,
)
_THE_SCRIPTS_OWN = re.compile(r"out of memory|device-side assert|invalid configuration argument", re.IGNORECASE)
_log = structlog.get_logger()


class Found(msgspec.Struct, frozen=True):
    """One finding of the agent."""

    fault: str
    component: str = ""
    verdict: str = ""
    recovery: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What the agent knows of this node after its probes have looked."""

    verdict: str
    looked: bool = False
    findings: tuple[Found, ...] = ()


def suspects_hardware(failure: Failure) -> bool:
    """Whether the hardware can have caused this death; not what a peer's death, or the script itself, explains."""
    if is_consequence(failure) or _THE_SCRIPTS_OWN.search(failure.line):
        return False
    return failure.code in _SIGNALS or _HARDWARE.search(failure.line) is not None


@dataclass(frozen=True)
class NodeAgent:
    """Where the agent of this node takes reports."""

    url: str = ""
    token_file: str = ""
    socket: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> NodeAgent | None:
        """Read where it is; None where nothing says so. The socket goes first: it needs no token."""
        if path := environment.get(SOCKET):
            return cls(socket=path)
        if url := environment.get(URL):
            return cls(url=url, token_file=environment.get(TOKEN_FILE, USUAL_TOKEN))
        return None

    async def ask(self, failure: Failure, job: str, *, deadline: float = DEADLINE) -> Answer | None:
        """Report a death and give the answer; None where none came in time, which is logged."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Answer] = loop.create_future()

        def send() -> None:
            try:
                answer: Answer | Exception = self._send(body_of(failure, job), deadline)
            except (OSError, ValueError, http.client.HTTPException, msgspec.DecodeError) as error:
                answer = error
            try:
                loop.call_soon_threadsafe(_settle, told, answer)
            except RuntimeError:
                return  # The loop is closed: nobody waits any more.

        threading.Thread(target=send, name="report to the agent", daemon=True).start()
        try:
            async with asyncio.timeout(deadline):
                return await told
        except TimeoutError:
            why = f"no answer within {deadline:g} s"
        except (OSError, ValueError, http.client.HTTPException, msgspec.DecodeError) as error:
            why = str(error)
        _log.warning("the node's agent does not answer; the run goes on without it", where=self._where, why=why)
        return None

    @property
    def _where(self) -> str:
        return self.socket or self.url

    def _send(self, body: bytes, deadline: float) -> Answer:
        headers = {"Content-Type": "application/json"}
        path = PATH
        if self.socket:
            connection: http.client.HTTPConnection = _UnixConnection(self.socket, deadline)
        else:
            url = urlsplit(self.url)
            if url.scheme != "http" or not url.hostname:
                raise ValueError(f"{URL} is {self.url!r}, and not http://HOST:PORT")
            connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=deadline)
            path = url.path.rstrip("/") + PATH
            with open(self.token_file, encoding="ascii") as file:  # noqa: PTH123 (a plain string from the environment)
                headers["Authorization"] = f"Bearer {file.read().strip()}"
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            said = response.read(ANSWER_LIMIT)
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ValueError(f"{response.status} {response.reason}: {said[:200].decode(errors='replace').strip()}")
        return msgspec.json.decode(said, type=Answer)


class Reports:
    """The reports of one launcher; nothing where no agent is named."""

    def __init__(self, job: str, agent: NodeAgent | None = None) -> None:
        self._job = job
        self._agent = agent or NodeAgent.from_environment()
        self._running: set[asyncio.Task[None]] = set()

    def about(self, failure: Failure) -> None:
        """Report a death that the hardware may have caused; what the agent says is logged."""
        if self._agent is not None and suspects_hardware(failure):
            task = asyncio.create_task(self._report(self._agent, failure))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def leave(self) -> None:
        """Let what was begun be sent, and end: an answer would find nobody."""
        running = list(self._running)
        if running:
            await asyncio.wait(running, timeout=SENDING)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _report(self, agent: NodeAgent, failure: Failure) -> None:
        answer = await agent.ask(failure, self._job)
        if answer is not None:
            faults = ", ".join(f"{one.fault} on {one.component}" for one in answer.findings) or None
            _log.warning("the node's agent looked", verdict=answer.verdict, findings=faults, rank=failure.rank)


def body_of(failure: Failure, job: str) -> bytes:
    """Write a death as the agent reads it."""
    return msgspec.json.encode(
        {
            "kind": "workerDied",
            "job": job[:253],
            "rank": failure.rank,
            "exitCode": failure.code,
            "evidence": (failure.line or failure.cause)[:EVIDENCE_LIMIT],
        }
    )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _settle(told: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    if told.done():
        return
    if isinstance(answer, Exception):
        told.set_exception(answer)
    else:
        told.set_result(answer)
