"""Sends requests to one API server: connections, TLS, tokens, timeouts, retries and the fence.

Three rules keep a leader that has lost its lease from acting: every request has a timeout; a mutating one asks the
fence with that timeout right before it is sent (after it has a connection slot, not before); and it tells the server to
give up after the same time.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from yarl import URL

from fleetwell.kube.backoff import Backoff
from fleetwell.kube.config import ConnectionConfig
from fleetwell.kube.credentials import credentials_for
from fleetwell.kube.errors import (
    ApiError,
    ConfigError,
    KubeError,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_response,
)
from fleetwell.kube.http_library import aiohttp

if TYPE_CHECKING:
    from aiohttp.connector import AddrInfoType

Fence: TypeAlias = Callable[[float], None]
"""Called with a request's timeout before it is sent; raises ``Fenced`` to keep it from being sent."""

_READS = frozenset({"GET", "HEAD"})
_KEEPALIVE = (
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 20),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)
"""A peer that has vanished is noticed after 50 s even on a quiet watch, when no load balancer answers in its place."""


@dataclass(frozen=True)
class Call:
    """One request. ``what`` names it in messages: ``PATCH Node gpu-7``."""

    method: str
    path: str
    what: str
    timeout: float
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def mutating(self) -> bool:
        """Whether the request may change something."""
        return self.method not in _READS


class Transport:
    """The connections to one API server, shared by every ``Client`` view of it."""

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        user_agent: str,
        connections: int = 32,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self._user_agent = user_agent
        self._slots = asyncio.Semaphore(connections)
        self._sleep = sleep
        self._now = now
        self._credentials = credentials_for(config)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the session; no connection is opened before the first request."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=_tls(self.config), socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Compression would cost the API server and us CPU to save bandwidth that a cluster network has.
            headers={"User-Agent": self._user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
        )
        # aiohttp sends PUT and DELETE a second time when a kept connection breaks, behind the fence's back. There is no
        # public switch; tests/kube/test_transport.py notices should this one go.
        self._session._retry_connection = False  # noqa: SLF001 (see above)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, call: Call, *, fence: Fence | None, patience: float) -> bytes:
        """Send a request and give the answer's body.

        Asks again, for up to ``patience`` seconds, only where that cannot do a thing twice: reads after a broken
        connection, 429 or 5xx; anything that was never sent or that API priority and fairness turned away.
        """
        backoff = Backoff(0.1, 5.0)
        give_up = self._now() + patience
        renewed = False
        while True:
            try:
                return await self._once(call, fence)
            except Unauthorized:
                if renewed or not self._credentials.refused():
                    raise
                renewed = True
            except KubeError as error:
                if not _may_repeat(call, error):
                    raise
                pause = backoff.after_failure(at_least=error.retry_after if isinstance(error, ApiError) else None)
                if self._now() + pause > give_up:
                    raise
                await self._sleep(pause)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a long answer and give its chunks; ``call.timeout`` bounds the whole of it."""
        token = await self._credentials.token()
        with _translated(call):
            async with self._request(call, token, call.params) as response:
                if not response.ok:
                    error = from_response(call.what, response.status, response.headers, await response.read())
                    if isinstance(error, Unauthorized):
                        self._credentials.refused()
                    raise error
                yield response.content.iter_any()

    async def _once(self, call: Call, fence: Fence | None) -> bytes:
        params = dict(call.params)
        if call.mutating:
            params["timeout"] = f"{max(1, round(call.timeout * 1000))}ms"
        async with self._slots:
            token = await self._credentials.token()
            if call.mutating and fence is not None:
                fence(call.timeout)
            with _translated(call):
                async with self._request(call, token, params) as response:
                    body = await response.read()
        if response.ok:
            return body
        raise from_response(call.what, response.status, response.headers, body)

    def _request(
        self, call: Call, token: str | None, params: Mapping[str, str]
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            msg = "the client is not open: use it inside `async with Client(...)`"
            raise RuntimeError(msg)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        return self._session.request(
            call.method,
            URL(self.config.server + call.path, encoded=True),
            params=params,
            data=call.body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=call.timeout),
            allow_redirects=False,
        )


class _translated:  # noqa: N801 (reads as a verb at its use)
    """Turns the HTTP library's exceptions into ``Unreachable``, chained."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Translate what left the block."""
        call = self._call
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
            why = f"TLS failed: {error}; check the certificate authority in the connection's configuration"
            raise Unreachable(call.what, why, sent=False) from error
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            raise Unreachable(call.what, str(error) or "no connection", sent=False) from error
        if isinstance(error, TimeoutError):
            raise Unreachable(call.what, f"no answer within {call.timeout:g} s", sent=True) from error
        if isinstance(error, aiohttp.ClientError | OSError):
            raise Unreachable(call.what, f"{type(error).__name__}: {error}", sent=True) from error


def _may_repeat(call: Call, error: KubeError) -> bool:
    if isinstance(error, Unreachable):
        return not call.mutating or not error.sent
    if isinstance(error, TooManyRequests):
        return not error.disruption_budget
    return isinstance(error, ServerError) and not call.mutating


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for level, option, value in _KEEPALIVE:
        if hasattr(socket, option):
            made.setsockopt(level, getattr(socket, option), value)
    return made


def _tls(config: ConnectionConfig) -> ssl.SSLContext | bool:
    if not config.server.startswith("https://"):
        return True
    try:
        context = ssl.create_default_context(
            cafile=config.ca_file if not config.ca_data else None,
            cadata=base64.b64decode(config.ca_data).decode() if config.ca_data else None,
        )
        if config.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _load_client_certificate(context, config)
    except (OSError, ValueError) as error:
        msg = f"the certificates of {config.source} cannot be used: {error}; check the files and data it names"
        raise ConfigError(msg) from error
    return context


def _load_client_certificate(context: ssl.SSLContext, config: ConnectionConfig) -> None:
    if not (config.client_cert_data or config.client_cert_file):
        return
    import tempfile  # noqa: PLC0415 (costs memory; whoever has a token needs no file)

    # The ssl module reads certificates from files only; a private folder that is gone again keeps the key off the disk
    # for longer than it takes to read.
    with tempfile.TemporaryDirectory() as folder:
        certificate = _as_file(Path(folder, "cert"), config.client_cert_data, config.client_cert_file)
        key = _as_file(Path(folder, "key"), config.client_key_data, config.client_key_file)
        if certificate is not None:
            context.load_cert_chain(certificate, key)


def _as_file(scratch: Path, data: str | None, file: Path | None) -> Path | None:
    if data:
        scratch.write_bytes(base64.b64decode(data))
        return scratch
    return file
