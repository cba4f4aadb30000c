"""An API server that answers as a test scripts it and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from fleetwell.kube.config import ConnectionConfig


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; the method of a watch is ``WATCH``."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """One answer. ``stream`` is sent piece by piece; then the connection ends, is cut (``cut``) or stays (``hang``)."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Sequence[bytes] | None = None
    cut: bool = False
    hang: bool = False


class FakeApi:
    """Answers each (method, path) with its scripted answers in turn; the last one stays. Unscripted is 404."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._answers: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        self._closing = asyncio.Event()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._server = TestServer(application)

    async def __aenter__(self) -> Self:
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        await self._server.close()

    @property
    def config(self) -> ConnectionConfig:
        return ConnectionConfig(server=str(self._server.make_url("")).rstrip("/"), token="secret")

    def answer(self, method: str, path: str, *answers: Answer) -> None:
        self._answers[method, path].extend(answers)

    def asked(self, method: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        method = "WATCH" if request.query.get("watch") == "true" else request.method
        text = await request.text()
        body = json.loads(text) if text else None
        self.seen.append(Seen(method, request.path, dict(request.query), dict(request.headers), body))
        script = self._answers[method, request.path]
        if not script:
            return _whole(status(404, "NotFound", f"{request.path} not found"))
        answer = script.popleft() if len(script) > 1 else script[0]
        if answer.stream is None and not answer.hang and not answer.cut:
            return _whole(answer)
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
        if answer.stream is not None:
            await response.prepare(request)
            for piece in answer.stream:
                await response.write(piece)
        if answer.hang:
            await self._closing.wait()
        if answer.cut and request.transport is not None:
            request.transport.abort()
        return response


def _whole(answer: Answer) -> web.Response:
    body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
    return web.Response(status=answer.status, body=body, headers={"Content-Type": "application/json", **answer.headers})


def status(code: int, reason: str, message: str, *, headers: Mapping[str, str] | None = None, **details: Any) -> Answer:
    """Make an error answer in the API server's form."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return Answer(code, body, headers or {})


def node(name: str, version: int, *, uid: str = "", boot_id: str = "") -> dict[str, Any]:
    """Make a Node with a field that fleetwell does not know."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"novelty": {"deep": [1]}},
        "status": {"nodeInfo": {"bootID": boot_id}},
    }


def listing(version: int, *items: Any, next_page: str = "") -> Answer:
    """Make a list answer."""
    return Answer(body={"metadata": {"resourceVersion": str(version), "continue": next_page}, "items": list(items)})


def event(kind: str, obj: Any) -> bytes:
    """Make one line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    """Make a bookmark line."""
    return event("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": str(version)}})


async def until(condition: Callable[[], bool]) -> None:
    """Wait, for at most five seconds, until real sockets have brought about what a test expects."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)
