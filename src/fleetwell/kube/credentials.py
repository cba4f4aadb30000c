"""Bearer tokens: given, in a file that is rotated, or printed by a command."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from fleetwell.kube.config import ConnectionConfig, ExecPlugin
from fleetwell.kube.errors import ConfigError

log = structlog.get_logger(__name__)

REREAD_AFTER = 10.0
"""Seconds for which a token file's content is taken as current. The kubelet rotates at 80 % of a token's life."""

EXEC_TIMEOUT = 60.0
"""Seconds that a credential command may take; some ask a person or a slow single sign-on."""

EXPIRY_MARGIN = 60.0
"""Seconds before its end at which a token from a command is fetched again."""


class Credentials(Protocol):
    """Where the token comes from."""

    async def token(self) -> str | None:
        """Give the token to send now, or None where the connection itself proves who we are."""

    def refused(self) -> bool:
        """Note that the server refused the token; True where another may be had, so that asking again makes sense."""


def credentials_for(config: ConnectionConfig) -> Credentials:
    """Choose the source: a file wins over a fixed token, since the file is what gets rotated."""
    if config.token_file is not None:
        return TokenFile(config.token_file)
    if config.exec_plugin is not None and config.token is None:
        return ExecToken(config.exec_plugin, config.source)
    return FixedToken(config.token)


class FixedToken:
    """A token from a kubeconfig, or none at all where a client certificate does it."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    async def token(self) -> str | None:
        """Give the token."""
        return self._value

    def refused(self) -> bool:
        """There is no other."""
        return False


class TokenFile:
    """A token in a file that somebody else keeps fresh. An unreadable file leaves the last token in use."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now = now
        self._value: str | None = None
        self._read_at = 0.0

    async def token(self) -> str | None:
        """Give the token, read again when the last reading is old."""
        if self._value is None or self._now() - self._read_at >= REREAD_AFTER:
            self._value = self._read()
            self._read_at = self._now()
        return self._value

    def refused(self) -> bool:
        """Read the file now: it may have been rotated since."""
        before = self._value
        self._value = self._read()
        self._read_at = self._now()
        return self._value != before

    def _read(self) -> str:
        try:
            value = self._path.read_text().strip()
        except OSError as error:
            if self._value is not None:
                log.warning(
                    "token file unreadable, going on with the last token", file=str(self._path), error=str(error)
                )
                return self._value
            msg = f"the token file {self._path} cannot be read: {error}; no request can be made without it"
            raise ConfigError(msg) from error
        if not value:
            if self._value is not None:
                return self._value
            msg = f"the token file {self._path} is empty; wait for its writer or check the service account"
            raise ConfigError(msg)
        return value


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct):
    status: _ExecStatus | None = None


class ExecToken:
    """A token that a command prints (client-go's credential plugins), kept until shortly before it expires."""

    def __init__(self, plugin: ExecPlugin, source: str, *, wall: Callable[[], float] = time.time) -> None:
        self._plugin = plugin
        self._source = source
        self._wall = wall
        self._value: str | None = None
        self._expires: float | None = None
        self._lock = asyncio.Lock()

    async def token(self) -> str | None:
        """Give the token, running the command when there is none that still holds."""
        async with self._lock:
            stale = self._expires is not None and self._wall() > self._expires - EXPIRY_MARGIN
            if self._value is None or stale:
                self._value, self._expires = await self._run()
            return self._value

    def refused(self) -> bool:
        """Forget the token, so that the command runs again."""
        self._value = None
        return True

    async def _run(self) -> tuple[str, float | None]:
        plugin = self._plugin
        what = f"{self._source}: the credential command {plugin.command!r}"
        asked = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(asked).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            msg = f"{what} cannot be run: {error}. {plugin.install_hint}"
            raise ConfigError(msg.strip()) from error
        try:
            async with asyncio.timeout(EXEC_TIMEOUT):
                output, _ = await process.communicate()
        except TimeoutError as error:
            process.kill()
            msg = f"{what} gave no answer in {EXEC_TIMEOUT:.0f} s"
            raise ConfigError(msg) from error
        if process.returncode != 0:
            msg = f"{what} ended with {process.returncode}; log in again"
            raise ConfigError(msg)
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status
        except msgspec.DecodeError as error:
            msg = f"{what} printed no ExecCredential: {error}"
            raise ConfigError(msg) from error
        if status is None or not status.token:
            msg = f"{what} gave no token (certificates are not taken)"
            raise ConfigError(msg)
        expires = status.expiration_timestamp
        return status.token, datetime.fromisoformat(expires).timestamp() if expires else None
