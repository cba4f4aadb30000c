"""``fleetwell explain NODE``: why a node is as it is, what comes next and when, and how to stop it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path

import click

from fleetwell.api.node_health import NodeFinding
from fleetwell.cli.cluster import connected, connection, fail, finish, output, plain, print_json
from fleetwell.control.picture import Picture
from fleetwell.control.snapshot import snapshot
from fleetwell.policy.explain import explain
from fleetwell.policy.view import Episode


@click.command("explain")
@connection
@click.argument("node")
@output
def command(*, kubeconfig: Path | None, context: str | None, node: str, output: str) -> None:
    """Say why NODE is as it is: evidence, rule, clock, budget and pace now, what comes next, and how to stop it."""
    finish(_run(kubeconfig, context, node, as_json=output == "json"))


async def _run(kubeconfig: Path | None, context: str | None, node: str, *, as_json: bool) -> None:
    now = dt.datetime.now(tz=dt.UTC)
    async with connected(kubeconfig, context) as client:
        picture = await snapshot(client, now)
    episodes = _episodes(picture, node)
    if node not in picture.nodes and not episodes:
        raise fail(f"there is no node {node}, and no incident tells of one", "fleetwell nodes lists the nodes")
    stories = [explain(episode, picture.around(episode, now), picture.fleet(now), now) for episode in episodes]
    if not stories:
        stories = [_quiet(picture, node)]
    if as_json:
        print_json([{"node": node, "lines": story} for story in stories])
        return
    click.echo("\n\n".join("\n".join(plain(line) for line in story) for story in stories))


def _episodes(picture: Picture, node: str) -> list[Episode]:
    """Give the open episodes of a node, else the one that ended last."""
    found = [
        picture.book.episode(it.metadata.name) for it in picture.book.incidents.values() if it.spec.node_name == node
    ]
    known = sorted((it for it in found if it is not None), key=lambda it: it.status.timeline.opened)
    return [it for it in known if not it.status.phase.ended] or known[-1:]


def _quiet(picture: Picture, node: str) -> list[str]:
    """Describe a node that never had an incident."""
    under, view = picture.governed(node), picture.views[node]
    lines = [f"{node}: no incident"]
    if under.policy:
        lines.append(f"policy {under.policy} governs it, in pool {under.pool}")
    else:
        lines.append("no policy governs it: whatever is found on it, nothing is done")
    if under.problem:
        lines.append(f"problem: {under.problem}")
    if view.health is None:
        lines.append("no agent has ever reported from it")
    else:
        lines.append(f"its agent {'is alive' if view.agent_fresh else 'is silent'} and says {view.health.verdict}")
        lines += _found(view.health.findings)
        lines += [f"blind: {it.replace('neverAnswered', 'never answered on this machine')}" for it in view.health.blind]
    return lines


def _found(findings: Iterable[NodeFinding]) -> list[str]:
    """Tell each fault of a component once, with who sees it and what each of them saw last."""
    seen: dict[tuple[str, str], list[NodeFinding]] = {}
    for it in findings:
        seen.setdefault((it.fault, it.component), []).append(it)
    lines = []
    for (fault, component), those in seen.items():
        worst = max(those, key=lambda it: (it.verdict.severity, it.recovery.rank))
        by = " and ".join(dict.fromkeys(it.probe for it in those))
        lines.append(f"found: {fault} on {component}: {worst.verdict} by {by}, asks for {worst.recovery}")
        lines += [f"  | {line}" for line in dict.fromkeys(it.evidence[-1] for it in those if it.evidence)]
    return lines
