"""``fleetwell incidents``: open and past incidents, and a person's word on one of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import click
import msgspec

from fleetwell.api.incident import IncidentStatus
from fleetwell.api.resources import INCIDENTS, Incident
from fleetwell.cli.cluster import ago, connected, connection, fail, finish, output, plain, print_json, print_table
from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.errors import NotFound, Undecodable

_STAGES = ("opened", "quarantined", "drained", "remedied", "proved", "ended")
_MANAGER = "fleetwell-cli"


class _UserInfo(msgspec.Struct):
    username: str = ""


class _Status(msgspec.Struct, rename="camel"):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


@click.command("incidents")
@connection
@click.argument("name", required=False)
@click.option("--all", "-a", "everything", is_flag=True, help="Ended ones too.")
@click.option("--hold", "word", flag_value="hold", help="Do nothing further to NAME until --resume.")
@click.option("--resume", "word", flag_value="resume", help="Take the hold of NAME away.")
@click.option("--approve", "word", flag_value="approve", help="Let NAME go on although it waits for a person.")
@click.option("--retry", "word", flag_value="retry", help="Begin the ladder of NAME again, its attempts forgotten.")
@click.option("--release", "word", flag_value="release", help="Give the node back to work now, whatever is found.")
@click.option("--reason", help="Why; needed with a word other than --resume. Kept in the Incident with your name.")
@output
def command(
    *,
    kubeconfig: Path | None,
    context: str | None,
    name: str | None,
    everything: bool,
    word: str | None,
    reason: str | None,
    output: str,
) -> None:
    """List the open incidents, or show NAME; with a word such as --hold, say it on NAME.

    \b
    fleetwell incidents
    fleetwell incidents gpu-7-1c2d3e4f
    fleetwell incidents gpu-7-1c2d3e4f --release --reason "swapped the board by hand"
    """  # noqa: D301 (\b keeps click from joining the examples)
    if word is not None and name is None:
        raise click.UsageError(f"--{word} needs the NAME of an incident")
    if word not in {None, "resume"} and not (reason or "").strip():
        raise click.UsageError(f"--{word} needs --reason: it stays in the Incident for those who come after you")
    finish(_run(kubeconfig, context, name, word, reason or "", as_json=output == "json", everything=everything))


async def _run(
    kubeconfig: Path | None,
    context: str | None,
    name: str | None,
    word: str | None,
    reason: str,
    *,
    as_json: bool,
    everything: bool,
) -> None:
    async with connected(kubeconfig, context) as client:
        if name is None:
            await _list(client, as_json=as_json, everything=everything)
            return
        try:
            incident = await client.get(INCIDENTS, name)
        except NotFound:
            raise fail(f"there is no incident {name}", "fleetwell incidents --all lists them") from None
        if word is not None:
            incident = await _say(client, incident, word, reason)
        elif as_json:
            print_json(incident)
        else:
            _show(incident, dt.datetime.now(tz=dt.UTC))


async def _list(client: Client, *, as_json: bool, everything: bool) -> None:
    found = [it for it in (await client.list(INCIDENTS)).items if everything or not _ended(it)]
    found.sort(key=lambda it: it.metadata.creation_timestamp or "")
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no incidents" if everything else "no open incidents", err=True)
        return
    now = dt.datetime.now(tz=dt.UTC)
    rows = []
    for it in found:
        status = it.status
        phase = status.phase.value if status else "Opening"
        hold = status.hold.reason if status and status.hold else "-"
        since = status.since if status else None
        rows.append(
            (it.metadata.name, it.spec.node_name, phase, ago(since, now), hold, status.summary if status else "")
        )
    print_table(("NAME", "NODE", "PHASE", "FOR", "HELD", "SUMMARY"), rows)


async def _say(client: Client, incident: Incident, word: str, reason: str) -> Incident:
    name = incident.metadata.name
    if _ended(incident):
        raise fail(f"incident {name} is over; nothing was changed", "fleetwell incidents lists the open ones")
    said: dict[str, Any] | None = None
    if word != "resume":
        at = dt.datetime.now(tz=dt.UTC).isoformat().replace("+00:00", "Z")
        said = {"by": await _username(client), "at": at, "reason": reason}
    field = "hold" if word == "resume" else word
    body = {"metadata": {"uid": incident.metadata.uid}, "spec": {field: said}}
    written = await client.patch(INCIDENTS, name, body, kind=PatchKind.MERGE, field_manager=_MANAGER)
    click.echo(f"{word} is written to incident {name}; the controller takes it up at its next look", err=True)
    click.echo(f"hint: fleetwell explain {incident.spec.node_name}", err=True)
    return written


async def _username(client: Client) -> str:
    """Ask the API server who we are: the policy on Incidents compares ``by`` with the same name."""
    body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
    answer = await client.raw("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    try:
        return msgspec.json.decode(answer, type=_Review).status.user_info.username
    except msgspec.DecodeError as error:
        raise Undecodable(f"the API server does not say who you are: {error}; nothing was changed") from error


def _ended(incident: Incident) -> bool:
    return incident.status is not None and incident.status.phase.ended


def _show(incident: Incident, now: dt.datetime) -> None:
    spec, status = incident.spec, incident.status
    lines = [f"{incident.metadata.name}  {spec.kind} of node {spec.node_name} under policy {spec.policy}"]
    lines += _lines(status, now) if status else ["it has only just been opened"]
    for line in lines:
        click.echo(plain(line))


def _lines(status: IncidentStatus, now: dt.datetime) -> list[str]:
    lines = [f"{status.phase} for {ago(status.since, now)}: {status.summary}"]
    reached = ((stage, getattr(status.timeline, stage)) for stage in _STAGES)
    lines.append("  ".join(f"{stage} {at:%H:%M:%S}" for stage, at in reached if at is not None))
    lines += [
        f"finding   {it.fault} on {it.component}: {it.verdict}, asks for {it.recovery}"
        f"{'' if it.active else ' (no longer said)'}"
        for it in status.findings
    ]
    lines += [f"attempt   {it.number} {it.remedy} {it.result} {it.detail}".rstrip() for it in status.attempts]
    if status.hold is not None:
        lines.append(f"held      {status.hold.reason}: {status.hold.message}")
    if status.next is not None:
        lines.append(f"next      {status.next.step} at {status.next.at:%H:%M:%S}")
    return lines + [f"{said.at:%H:%M:%S}  {said.text}" for said in status.decisions]
