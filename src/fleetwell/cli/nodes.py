"""``fleetwell nodes``: the GPU nodes and how they are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from fleetwell.cli.cluster import connected, connection, finish, output, print_json, print_table
from fleetwell.control.picture import Picture
from fleetwell.control.snapshot import snapshot
from fleetwell.policy.pools import out_because
from fleetwell.policy.view import NodeView


@click.command("nodes")
@connection
@click.option("--all", "-a", "everything", is_flag=True, help="Nodes without policy, agent and GPUs too.")
@output
def command(*, kubeconfig: Path | None, context: str | None, everything: bool, output: str) -> None:
    """List the nodes that a policy governs, that have an agent or that offer GPUs, and how they are."""
    finish(_run(kubeconfig, context, as_json=output == "json", everything=everything))


async def _run(kubeconfig: Path | None, context: str | None, *, as_json: bool, everything: bool) -> None:
    async with connected(kubeconfig, context) as client:
        picture = await snapshot(client, dt.datetime.now(tz=dt.UTC))
    rows = [
        _row(picture, view)
        for _, view in sorted(picture.views.items())
        if everything or picture.governed(view.name).policy or view.health is not None or view.allocatable_gpus > 0
    ]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("no GPU nodes", err=True)
        click.echo("hint: fleetwell nodes --all; a RemediationPolicy says which nodes are governed", err=True)
    else:
        columns = ("node", "pool", "work", "health", "agent", "gpus", "incident", "summary")
        print_table([name.upper() for name in columns], [[row[name] for name in columns] for row in rows])


def _row(picture: Picture, view: NodeView) -> dict[str, str]:
    health = view.health
    incidents = [it.metadata.name for it in picture.book.open_incidents(view.name)]
    if health is None:
        verdict, agent = "-", "none"
    else:
        verdict, agent = (health.verdict.value, "alive") if view.agent_fresh else ("UNKNOWN", "silent")
    seen, expected = (health.seen.gpus, health.expected.gpus) if health else (-1, -1)
    return {
        "node": view.name,
        "pool": view.pool or "-",
        "work": "unproven" if view.unproven else (out_because(view) or "takes work"),
        "health": verdict,
        "agent": agent,
        "gpus": f"{_count(seen)}/{_count(expected)}" if health else _count(view.allocatable_gpus),
        "incident": ", ".join(incidents) or "-",
        "summary": health.summary if health else "",
    }


def _count(number: int) -> str:
    return str(number) if number >= 0 else "?"
