"""Runs an agent as a process: logging, the connection, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import structlog

from fleetwell import __version__
from fleetwell.agent.loop import Agent
from fleetwell.agent.own_objects import AnotherNodeError
from fleetwell.agent.settings import Settings
from fleetwell.kube import config
from fleetwell.kube.client import Client
from fleetwell.kube.errors import ConfigError

log = structlog.get_logger(__name__)


class StartError(RuntimeError):
    """The agent cannot begin; the message says what to do."""


def run(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; give the exit code. Conditions stay as they are, and the Lease runs out.

    :raises StartError: it could not begin.
    """
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"the state folder {settings.state_dir} cannot be made: {error}") from error
    return asyncio.run(_main(settings))


async def _main(settings: Settings) -> int:
    try:
        connection = config.load(settings.kubeconfig)
    except ConfigError as error:
        raise StartError(str(error)) from error
    loop = asyncio.get_running_loop()
    async with Client(connection, user_agent=f"fleetwell-agent/{__version__}", connections=4) as client:
        try:
            agent = Agent(settings, client.without_retries())
        except OSError as error:
            raise StartError(f"the host's tree at {settings.host_root} cannot be read: {error}") from error
        task = asyncio.ensure_future(agent.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        code = 0
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        except* AnotherNodeError as errors:
            log.warning("this agent ends so that a new one begins", why=str(errors.exceptions[0]))
            code = 1
    log.info("agent ends; conditions stay as they are")
    return code
