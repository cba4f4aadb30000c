"""Requests that change nothing: one object, a list, a watch."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from fleetwell.kube import bodies
from fleetwell.kube.config import ConnectionConfig
from fleetwell.kube.errors import Expired, Undecodable
from fleetwell.kube.resource import Resource
from fleetwell.kube.transport import Call, Fence, Transport
from fleetwell.kube.watch import Frame, Listing, Page, decode_page, frames

T = TypeVar("T")

PAGE_SIZE = 500
PATIENCE = 30.0
"""Seconds for which a request that may be repeated is repeated."""


class Reader:
    """The connection to one API server with one identity, and what it can read.

    Every method raises ``KubeError``. ``timeout`` bounds one attempt, at the client and (when something may change)
    at the server. ``fenced_by`` and ``without_retries`` give views that share the connections.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        user_agent: str,
        timeout: float = 10.0,
        fence: Fence | None = None,
        patience: float = PATIENCE,
        connections: int = 32,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = Transport(config, user_agent=user_agent, connections=connections, sleep=sleep)
        self._timeout = timeout
        self._patience = patience
        self.fence = fence

    @property
    def config(self) -> ConnectionConfig:
        """Where this client's API server is."""
        return self._transport.config

    async def __aenter__(self) -> Self:
        """Open."""
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection, those of views too."""
        await self._transport.close()

    def without_retries(self) -> Self:
        """Give a view in which ``timeout`` bounds the whole request, since it is tried once."""
        view = copy.copy(self)
        view._patience = 0.0  # noqa: SLF001 (our own, of the copy)
        return view

    async def get(
        self, resource: Resource[T], name: str, namespace: str | None = None, *, timeout: float | None = None
    ) -> T:
        """Read one object, live (a quorum read)."""
        what = f"GET {resource.describe(namespace, name)}"
        return decoded(resource, what, await self._send("GET", resource.path(namespace, name), what, timeout=timeout))

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> Listing[T]:
        """Read all objects that match; one that cannot be decoded fails the list, so that none is missed silently."""
        what = f"LIST {resource.describe(namespace, None)}"
        params = bodies.selection(label_selector, field_selector, resource_version)
        for last_try in (False, True):
            items: list[T] = []
            version = ""
            try:
                async with aclosing(self.pages(resource, namespace, params=params, timeout=timeout)) as pages:
                    async for page in pages:
                        items.extend(decoded(resource, what, raw) for raw in page.items or ())
                        version = page.metadata.resource_version
            except Expired:
                # The snapshot behind the pages was compacted away. Begin again, once.
                if last_try:
                    raise
                continue
            return Listing(items, version)
        raise AssertionError  # the loop returns or raises

    async def pages(
        self,
        resource: Resource[Any],
        namespace: str | None = None,
        *,
        params: Mapping[str, str],
        timeout: float | None = None,
    ) -> AsyncGenerator[Page, None]:
        """Read a list page by page, its objects undecoded."""
        what = f"LIST {resource.describe(namespace, None)}"
        path = resource.path(namespace)
        next_page = ""
        while True:
            paging = {"limit": str(PAGE_SIZE)} | ({"continue": next_page} if next_page else {})
            fixed = {key: value for key, value in params.items() if not (next_page and key == "resourceVersion")}
            page = decode_page(what, await self._send("GET", path, what, params=fixed | paging, timeout=timeout))
            yield page
            next_page = page.metadata.next_page
            if not next_page:
                return

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[Any],
        namespace: str | None = None,
        *,
        resource_version: str,
        params: Mapping[str, str],
        seconds: float,
        grace: float,
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        """Follow changes after ``resource_version``, with bookmarks.

        The server is asked to end the watch after ``seconds``; when it has not ``grace`` seconds later, the connection
        is half open and ``Unreachable`` is raised.
        """
        what = f"WATCH {resource.describe(namespace, None)}"
        asked = {
            **params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        call = Call("GET", resource.path(namespace), what, seconds + grace, asked)
        async with self._transport.stream(call) as chunks, aclosing(frames(what, chunks)) as lines:
            yield lines

    async def raw(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> bytes:
        """Send any request (``/version``, ``/readyz``, a subresource without a method here) and give the body."""
        what = f"{method} {path}"
        return await self._send(
            method, path, what, params=params, body=body, content_type=content_type, timeout=timeout
        )

    async def _send(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None,
    ) -> bytes:
        bound = self._timeout if timeout is None else timeout
        call = Call(method, path, what, bound, params or {}, body, content_type)
        return await self._transport.send(call, fence=self.fence, patience=self._patience)


def decoded(resource: Resource[T], what: str, body: bytes | msgspec.Raw) -> T:
    """Decode an answer, or say which answer could not be."""
    try:
        return resource.decode(body)
    except msgspec.DecodeError as error:
        msg = f"{what}: the answer cannot be read as {resource.kind}: {error}"
        raise Undecodable(msg) from error
