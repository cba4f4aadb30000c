"""A small HTTP/1.1 server for the two things that an agent is asked for: its metrics, and what a job has to report.

Everything that arrives is hostile: the head, the body, the time that a request may take and the number of connections
are bounded, one request is answered a connection, and nothing but a length says where a body ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

HEAD_LIMIT = 8 * 1024
"""Bytes of request line and headers; a service account's token is 1 to 2 KB of it."""
BODY_LIMIT = 4 * 1024
READ_SECONDS = 5.0
WRITE_SECONDS = 5.0
CONNECTIONS = 32
"""At one time, on each endpoint; the next is closed at once."""
REOPEN_SECONDS = 30.0
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Peer:
    """Who is at the other end."""

    address: str = ""
    """Its IP address; empty on a Unix socket."""
    pid: int = 0
    uid: int = -1
    """Of the process that connected to a Unix socket, as the kernel tells it; pid 0: it is in no namespace of ours."""


@dataclass(frozen=True)
class Request:
    """One request; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    peer: Peer


@dataclass(frozen=True)
class Response:
    """One answer."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def refusal(cls, status: HTTPStatus, why: str, **headers: str) -> Response:
        """Say no, and why; an underscore in a header's name stands for a dash."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, f"{why}\n".encode(), headers=named)


Handler = Callable[[Request], Awaitable[Response]]


class _BadRequestError(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.response = Response.refusal(status, why)


class HttpServer:
    """Answers ``routes``, a handler for each method and path, on as many endpoints as are asked for.

    An endpoint that cannot be opened is tried again: an agent without it still does its work.
    """

    def __init__(self, routes: Mapping[tuple[str, str], Handler]) -> None:
        self._routes = routes

    async def serve_tcp(self, host: str, port: int) -> None:
        """Listen on an address until cancelled."""
        await self._serve(f"{host}:{port}", lambda answer: asyncio.start_server(answer, host, port, limit=HEAD_LIMIT))

    async def serve_unix(self, path: Path) -> None:
        """Listen on a Unix socket until cancelled; any user of this machine may connect."""

        async def listen(answer: _Answer) -> asyncio.Server:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_socket():
                path.unlink()  # Of an agent that is gone: two agents never share a node.
            server = await asyncio.start_unix_server(answer, path, limit=HEAD_LIMIT)
            path.chmod(0o666)
            return server

        try:
            await self._serve(str(path), listen)
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    async def _serve(self, where: str, listen: Callable[[_Answer], Awaitable[asyncio.Server]]) -> None:
        open_now: set[asyncio.Task[None]] = set()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 (asyncio runs this as a task)
            if len(open_now) >= CONNECTIONS:
                writer.transport.abort()
                return
            open_now.add(task)
            try:
                await self._answer(reader, writer)
            finally:
                open_now.discard(task)

        server = await _opened(where, lambda: listen(answer))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()
            for task in open_now:
                task.cancel()
            await asyncio.gather(*open_now, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                request = await _read(reader, _peer(writer))
            response = await self._handle(request)
        except _BadRequestError as error:
            response = error.response
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        writer.write(_encode(response))
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(WRITE_SECONDS):
                await writer.wait_closed()
        writer.transport.abort()  # Does nothing where it closed in time.

    async def _handle(self, request: Request) -> Response:
        handler = self._routes.get((request.method, request.path))
        if handler is not None:
            return await handler(request)
        others = sorted(method for method, path in self._routes if path == request.path)
        if others:
            return Response.refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"use {others[0]}", Allow=", ".join(others))
        return Response.refusal(HTTPStatus.NOT_FOUND, "there is nothing here")


_Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _opened(where: str, listen: Callable[[], Awaitable[asyncio.Server]]) -> asyncio.Server:
    while True:
        try:
            server = await listen()
        except OSError as error:
            log.warning("endpoint not opened; it is tried again", where=where, why=str(error))
            await asyncio.sleep(REOPEN_SECONDS)
        else:
            log.info("listening", where=where)
            return server


async def _read(reader: asyncio.StreamReader, peer: Peer) -> Request:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise _BadRequestError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the head is over {HEAD_LIMIT} bytes"
        ) from error
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _BadRequestError(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, "a header has no name or no value")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise _BadRequestError(HTTPStatus.LENGTH_REQUIRED, "give the body's length; chunks are not taken")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 10):
        raise _BadRequestError(HTTPStatus.BAD_REQUEST, "the Content-Length is no number")
    if int(length) > BODY_LIMIT:
        raise _BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is over {BODY_LIMIT} bytes")
    body = await reader.readexactly(int(length))
    return Request(words[0], words[1].partition("?")[0], headers, body, peer)


def _peer(writer: asyncio.StreamWriter) -> Peer:
    link: socket.socket = writer.get_extra_info("socket")
    if link.family == socket.AF_UNIX:
        pid, uid, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        return Peer(pid=pid, uid=uid)
    return Peer(address=str(writer.get_extra_info("peername")[0]))


def _encode(response: Response) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status.value} {response.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + response.body


def split_address(text: str) -> tuple[str, int]:
    """Read ``host:port`` (``[::]:9420`` for IPv6).

    :raises ValueError: it has another form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, for example 0.0.0.0:9420")
    return host.strip("[]"), int(port)
