"""``fleetwell faults``: the catalogue of what can be wrong with a node, and what is done about it."""

from __future__ import annotations

import difflib
from typing import Any

import click

from fleetwell.cli.cluster import fail, output, print_json, print_table
from fleetwell.health.catalogue import CATALOGUE, XIDS, Fault, for_xid
from fleetwell.health.vocabulary import Clears, FaultName


@click.group("faults", invoke_without_command=True)
@output
@click.pass_context
def command(ctx: click.Context, *, output: str) -> None:
    """List every kind of fault: what it is called, what it says of its component and what it asks for."""
    if ctx.invoked_subcommand is not None:
        return
    rows = sorted(CATALOGUE.values(), key=lambda one: (one.condition, one.name))
    if output == "json":
        print_json([_all(one) for one in rows])
        return
    columns = ("fault", "condition", "verdict", "recovery", "means")
    print_table(
        [name.upper() for name in columns],
        [(one.name, one.condition.partition("/")[2], one.verdict, one.recovery, one.means) for one in rows],
    )


@command.command("show", short_help="Explain one fault, by its name or an Xid number.")
@click.argument("name")
@output
def show(*, name: str, output: str) -> None:
    """Explain one fault: what it means, what is done, how it ends, where the rule comes from. NAME or an Xid number."""
    entry = CATALOGUE.get(FaultName(name)) or _by_any_case(name) or _by_xid(name)
    if entry is None:
        near = difflib.get_close_matches(name.lower(), [one.lower() for one in CATALOGUE], n=3, cutoff=0.5)
        names = [one for one in CATALOGUE if one.lower() in near] or [
            one for one in CATALOGUE if name.lower() in one.lower()
        ]
        hint = f"did you mean {' or '.join(names[:3])}?" if names else "fleetwell faults lists them"
        raise fail(f"there is no fault {name[:64]!r} in the catalogue", hint)
    if output == "json":
        print_json(_all(entry))
        return
    lines = [
        f"{entry.name}: {entry.means}",
        "",
        f"verdict    {entry.verdict}",
        f"asks for   {entry.recovery}{_least(entry)}",
        f"action     {entry.action}",
        f"ends       {_ends(entry)}",
        f"seen       {_debounce(entry)}",
        f"condition  {entry.condition}{'' if entry.touches_node else ' (never moved: an application did it)'}",
        f"found on   {entry.scope}",
        f"whose      {entry.fault_class}",
        f"source     {entry.source}",
    ]
    xids = _xids(entry.name)
    if xids:
        lines.append(f"Xids       {', '.join(map(str, xids))}")
    click.echo("\n".join(lines))


def _all(entry: Fault) -> dict[str, Any]:
    return {
        "fault": entry.name,
        "means": entry.means,
        "action": entry.action,
        "verdict": entry.verdict,
        "recovery": entry.recovery,
        "least": entry.least,
        "clears": entry.clears,
        "ends": _ends(entry),
        "condition": entry.condition,
        "scope": entry.scope,
        "class": entry.fault_class,
        "debounce": entry.debounce,
        "xids": _xids(entry.name),
        "source": entry.source,
    }


def _xids(name: str) -> list[int]:
    return [xid for xid in XIDS if for_xid(xid).fault == name]


def _by_any_case(name: str) -> Fault | None:
    return next((entry for known, entry in CATALOGUE.items() if known.lower() == name.lower()), None)


def _by_xid(name: str) -> Fault | None:
    number = name.lower().removeprefix("xid").lstrip(": ")
    return CATALOGUE[for_xid(int(number)).fault] if number.isascii() and number.isdigit() else None


def _least(entry: Fault) -> str:
    stronger = entry.least.rank > 0 and entry.least != entry.recovery
    return f"; nothing weaker than {entry.least} helps" if stronger else ""


def _ends(entry: Fault) -> str:
    match entry.clears:
        case Clears.TIME:
            return f"by time: {entry.seconds:g} s after it was last seen"
        case Clears.BOOT:
            return "by a new boot and a full look of that boot that finds all well"
        case Clears.REMEDY:
            return "when what it asks for was done and the proof passed"
        case Clears.SNAPSHOT:
            return "when the probe that found it finds all well again"


def _debounce(entry: Fault) -> str:
    k, of = entry.debounce
    return "at once" if k == 1 else f"when it was there in {k} of the last {of} looks"
