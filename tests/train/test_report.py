"""A launcher that tells its node's agent of a death."""

from __future__ import annotations

import json
import signal
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fleetwell.train.protocol import Failure
from fleetwell.train.report import SOCKET, TOKEN_FILE, URL, Answer, Found, NodeAgent, suspects_hardware
from train.launching import Ground

BAD = {"verdict": "BAD", "looked": True, "findings": [{"fault": "GpuLost", "component": "gpu/GPU-1"}]}


class Server:
    """An agent that answers every report alike; ``says`` is raw where it is bytes."""

    def __init__(self, path: Path | None = None) -> None:
        self.says: Any = BAD
        self.status = 200
        self.asked: list[tuple[str, str | None, Any]] = []
        self.release = threading.Event()
        self.release.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, self.headers["Authorization"], body))
                outer.release.wait(10)
                said = outer.says if isinstance(outer.says, bytes) else json.dumps(outer.says).encode()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                return

            def address_string(self) -> str:
                return ""

        class UnixServer(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self.url = ""
        self.server: socketserver.BaseServer
        if path is None:
            tcp = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            self.url = f"http://127.0.0.1:{tcp.server_port}"
            self.server = tcp
        else:
            self.server = UnixServer(str(path), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def died(code: int = -signal.SIGSEGV, line: str = "") -> Failure:
    return Failure(0, 3, 100, code, "was killed", line)


def agent(server: Server, tmp_path: Path) -> NodeAgent:
    (tmp_path / "token").write_text("t0ken\n")
    return NodeAgent(url=server.url, token_file=str(tmp_path / "token"))


@pytest.mark.parametrize(
    "failure",
    [
        died(),
        died(-signal.SIGBUS),
        died(1, "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        died(1, "torch.AcceleratorError: CUDA error: unspecified launch failure"),
        died(1, "RuntimeError: CUDA error: an illegal memory access was encountered"),
        died(1, "RuntimeError: No CUDA GPUs are available"),
        died(1, "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    ],
)
def test_what_the_hardware_can_cause_is_reported(failure: Failure) -> None:
    assert suspects_hardware(failure)


@pytest.mark.parametrize(
    "failure",
    [
        died(1, "ValueError: bad config"),
        died(-signal.SIGKILL),
        died(-signal.SIGTERM),
        died(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        died(1, "RuntimeError: CUDA error: device-side assert triggered"),
        died(-signal.SIGABRT, "NCCL communicator was aborted on rank 1"),
        died(1, "RuntimeError: Connection closed by peer [10.0.0.2]:4000"),
    ],
)
def test_what_the_script_or_a_peer_explains_is_not(failure: Failure) -> None:
    assert not suspects_hardware(failure)


async def test_over_the_network_the_pods_token_is_shown(server: Server, tmp_path: Path) -> None:
    answer = await agent(server, tmp_path).ask(died(line="x" * 5000), "run-1")
    assert answer is not None
    assert (answer.verdict, answer.findings[0].fault) == ("BAD", "GpuLost")
    ((path, authorization, body),) = server.asked
    assert (path, authorization) == ("/v1/reports", "Bearer t0ken")
    assert {key: body[key] for key in ("kind", "job", "rank", "exitCode")} == {
        "kind": "workerDied", "job": "run-1", "rank": 3, "exitCode": -11,
    }  # fmt: skip
    assert len(body["evidence"]) == 1024


async def test_over_the_socket_no_token_is_needed(tmp_path: Path) -> None:
    server = Server(tmp_path / "s")
    assert await NodeAgent(socket=str(tmp_path / "s")).ask(died(), "run-1") == Answer(
        "BAD", looked=True, findings=(Found("GpuLost", "gpu/GPU-1"),)
    )
    server.close()


@pytest.mark.parametrize("says", [b"not json", {"no": "verdict"}, b"\xff"])
async def test_an_answer_that_cannot_be_read_is_none(server: Server, tmp_path: Path, says: Any) -> None:
    server.says = says
    assert await agent(server, tmp_path).ask(died(), "run-1") is None


async def test_an_agent_that_refuses_is_not_there_or_is_slow_holds_nobody_up(server: Server, tmp_path: Path) -> None:
    server.status = 429
    assert await agent(server, tmp_path).ask(died(), "run-1") is None
    assert await NodeAgent(socket=str(tmp_path / "none")).ask(died(), "run-1") is None
    assert await NodeAgent(url="https://there").ask(died(), "run-1") is None
    assert await NodeAgent(url=server.url, token_file=str(tmp_path / "no token")).ask(died(), "run-1") is None
    server.release.clear()
    assert await agent(server, tmp_path).ask(died(), "run-1", deadline=0.1) is None


def test_the_environment_says_where_the_agent_is() -> None:
    assert NodeAgent.from_environment({}) is None
    assert NodeAgent.from_environment({URL: "http://h:1"}) == NodeAgent(
        url="http://h:1", token_file="/var/run/secrets/fleetwell.io/token"
    )
    assert NodeAgent.from_environment({URL: "http://h:1", TOKEN_FILE: "/t"}) == NodeAgent(
        url="http://h:1", token_file="/t"
    )
    assert NodeAgent.from_environment({URL: "http://h:1", SOCKET: "/s"}) == NodeAgent(socket="/s")


def test_a_launcher_reports_a_segmentation_fault_before_it_leaves(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path / "s")
    monkeypatch.setenv(SOCKET, str(tmp_path / "s"))
    one = ground.launch(ground.script("import os; os.kill(os.getpid(), 11)"), flags=["--rdzv-id", "mine"])
    assert one.wait() == 1
    assert [body["job"] for _, _, body in server.asked] == ["mine"]
    assert "the node's agent looked verdict=BAD findings=GpuLost on gpu/GPU-1" in one.output
    server.close()


def test_a_launcher_with_a_bug_in_its_script_reports_nothing(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path / "s")
    monkeypatch.setenv(SOCKET, str(tmp_path / "s"))
    assert ground.launch(ground.script("raise SystemExit(3)")).wait() == 3
    assert server.asked == []
    server.close()
