"""The agent's small HTTP server, asked by real sockets that do not behave."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import pytest

from fleetwell.agent import http
from fleetwell.agent.http import HttpServer, Request, Response, split_address


class Served:
    """A server with one route, and what it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[Request] = []

    async def answer(self, request: Request) -> Response:
        self.asked.append(request)
        return Response(HTTPStatus.OK, b"heard")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(5):
            while True:
                with contextlib.suppress(OSError):
                    return await asyncio.open_unix_connection(self.path)
                await asyncio.sleep(0.01)

    async def says(self, text: bytes) -> bytes:
        """Send it as it is and give everything that comes back."""
        reader, writer = await self.connect()
        writer.write(text)
        said = b""
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                said = await reader.read()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        return said


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "s")
    task = asyncio.create_task(HttpServer({("POST", "/there"): made.answer}).serve_unix(made.path))
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_request_reaches_its_handler_with_headers_body_and_who_asks(served: Served) -> None:
    answer = await served.says(b"POST /there?x=1 HTTP/1.1\r\nContent-Length: 4\r\nX-One:  two \r\n\r\nbody")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nheard")
    (request,) = served.asked
    assert (request.path, request.body, request.headers["x-one"]) == ("/there", b"body", "two")
    assert (request.peer.uid, request.peer.pid) == (os.getuid(), os.getpid())


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET /there HTTP/1.1\r\n\r\n", b"405"),
        (b"POST /elsewhere HTTP/1.1\r\n\r\n", b"404"),
        (b"what is this\r\n\r\n", b"400"),
        (b"POST /there HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"POST /there HTTP/1.1\r\nContent-Length : 4\r\n\r\nbody", b"400"),
        (b"POST /there HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /there HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", b"400"),
        (b"POST /there HTTP/1.1\r\nContent-Length: 4097\r\n\r\n", b"413"),
        (b"POST /there HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST /there HTTP/1.1\r\nX: " + b"y" * 20000 + b"\r\n\r\n", b"431"),
    ],
)
async def test_what_is_no_proper_request_is_refused_with_a_reason(served: Served, said: bytes, status: bytes) -> None:
    answer = await served.says(said)
    assert answer.split(b" ")[1] == status
    assert served.asked == []


async def test_who_sends_nothing_more_is_left_after_a_while(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_SECONDS", 0.1)
    assert await served.says(b"POST /there HTTP/1.1\r\nContent-Length: 4\r\n\r\nbo") == b""
    assert await served.says(b"POST /there HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody") != b""


async def test_connections_beyond_the_limit_are_closed_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS", 2)
    held = [await served.connect() for _ in range(2)]
    await asyncio.sleep(0.05)  # Until the server has taken both.
    assert await served.says(b"POST /there HTTP/1.1\r\n\r\n") == b""
    for _, writer in held:
        writer.close()
        await writer.wait_closed()


async def test_the_socket_of_an_agent_that_is_gone_is_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        served = Served(tmp_path / "s")
        task = asyncio.create_task(HttpServer({("POST", "/there"): served.answer}).serve_unix(served.path))
        assert b" 200 " in await served.says(b"POST /there HTTP/1.1\r\n\r\n")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_an_address_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REOPEN_SECONDS", 0.05)
    first = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = first.sockets[0].getsockname()[1]
    served = Served(Path())
    task = asyncio.create_task(HttpServer({("POST", "/there"): served.answer}).serve_tcp("127.0.0.1", port))
    await asyncio.sleep(0.1)
    assert not task.done()
    first.close()
    async with asyncio.timeout(5):
        while not served.asked:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"POST /there HTTP/1.1\r\n\r\n")
                await reader.read()
                writer.close()
            await asyncio.sleep(0.01)
    assert served.asked[0].peer.address == "127.0.0.1"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("text", "address"), [("0.0.0.0:9420", ("0.0.0.0", 9420)), ("[::]:1", ("::", 1))])
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["9420", ":9420", "host:", "host:70000"])
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(text)
