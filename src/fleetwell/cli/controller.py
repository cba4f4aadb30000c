"""``fleetwell controller``: the cluster's process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import uuid
from pathlib import Path

import click
import structlog

from fleetwell.cli import options
from fleetwell.cli.cluster import connection
from fleetwell.control.main import Options, serve
from fleetwell.control.settings import NAMESPACE, Settings, TemplateKind
from fleetwell.kube.errors import KubeError


class _Kind(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    name = "GROUP/VERSION/KIND[=PLURAL]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> TemplateKind:
        """Read one kind of the allow-list."""
        if isinstance(value, TemplateKind):
            return value
        try:
            return TemplateKind.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _identity() -> str:
    """Name this process uniquely: a restart on the same host must not take itself for the old one."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}-{uuid.uuid4().hex[:8]}"


@click.command("controller")
@connection
@click.option(
    "--namespace", default=NAMESPACE, show_default=True, help="Where the leader's and the agents' Leases are."
)
@click.option("--identity", default=_identity, show_default="host name and a random part", help="Holder of the Lease.")
@options.timed("--lease-duration", "15s", "That others wait for us.", read=options.some_time)
@options.timed("--renew-deadline", "10s", "That we act on one renewal.", read=options.some_time)
@options.timed("--retry-period", "2s", "Between two renewals.", read=options.some_time)
@options.timed(
    "--agent-stale-after",
    "3m",
    "Without a heartbeat, by our own clock, after which an agent is silent.",
    read=options.some_time,
)
@click.option(
    "--replacement-kind",
    "kinds",
    type=_Kind(),
    multiple=True,
    help="A kind that the template provider may create; may be given several times.  [default: none]",
)
@click.option("--workers", type=click.IntRange(1, 1024), default=64, show_default=True, help="Effects at once.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
def command(
    *,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    identity: str,
    lease_duration: float,
    renew_deadline: float,
    retry_period: float,
    agent_stale_after: float,
    kinds: tuple[TemplateKind, ...],
    workers: int,
    log_format: str,
) -> None:
    """Decide for the fleet and act, step by step, within the disruption budget.

    Waits for leadership, leads until SIGTERM (exit code 0, the Lease is given back) or until leadership is lost (exit
    code 3: start it again).
    """
    _log_to_stderr(text=log_format == "text")
    if not 0 < retry_period < renew_deadline / 2 < renew_deadline < lease_duration:
        raise click.UsageError("--retry-period must be under half of --renew-deadline, and that under --lease-duration")
    chosen = Options(
        identity=identity,
        kubeconfig=kubeconfig,
        context=context,
        settings=Settings(
            namespace=namespace, agent_stale_after=agent_stale_after, template_kinds=kinds, workers=workers
        ),
        lease_duration=lease_duration,
        renew_deadline=renew_deadline,
        retry_period=retry_period,
    )
    try:
        sys.exit(asyncio.run(serve(chosen)))
    except KubeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def _log_to_stderr(*, text: bool) -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False) if text else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("INFO"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
