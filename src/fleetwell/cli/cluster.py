"""How the commands reach a cluster, and how they show what they found there.

Data goes to stdout: an aligned table, or JSON. Text from nodes and pods is hostile until shown as plain characters.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fleetwell import __version__
from fleetwell.api.fields import words
from fleetwell.kube.client import Client
from fleetwell.kube.config import load
from fleetwell.kube.errors import ConfigError, Forbidden, KubeError, NotFound, Unauthorized, Undecodable

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_WIDE = 10_000
_READABLE = 24
"""Cells below which text in a column is one word a line."""


def connection(function: F) -> F:
    """Add the options that say which cluster is meant."""
    given = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Kubeconfig file.  [default: $KUBECONFIG, the pod's service account, ~/.kube/config]",
    )
    context = click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
    return given(context(function))


output = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


@asynccontextmanager
async def connected(kubeconfig: Path | None, context: str | None) -> AsyncIterator[Client]:
    """Reach the cluster."""
    async with Client(load(kubeconfig, context), user_agent=f"fleetwell-cli/{__version__}", patience=5.0) as client:
        yield client


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; what the API server will not do is said in two lines, and the exit code is 1."""
    try:
        return asyncio.run(work)
    except KubeError as error:
        click.echo(f"error: {error}", err=True)
        if hint := _hint(error):
            click.echo(f"hint: {hint}", err=True)
        sys.exit(1)


def fail(message: str, hint: str) -> click.exceptions.Exit:
    """Say what is wrong and what to do, for a command that ends with code 1."""
    click.echo(f"error: {message}", err=True)
    click.echo(f"hint: {hint}", err=True)
    return click.exceptions.Exit(1)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print an aligned table; in a pipe it has no colours, no wrapping and no trailing blanks.

    On a screen the last column is wrapped beside the others, or below them where there is no room for it; the other
    columns are never cut, since their words are what the next command is given.
    """
    rows = [[plain(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        screen = Console()
        widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
        if screen.width - sum(width + 2 for width in widths[:-1]) < min(widths[-1], _READABLE):
            _print_below(columns, rows, widths, screen)
            return
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=True)
    for at, column in enumerate(columns):
        table.add_column(column, no_wrap=at + 1 < len(columns), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if sys.stdout.isatty():
        Console().print(table)
        return
    buffer = io.StringIO()
    Console(file=buffer, width=_WIDE, no_color=True).print(table)
    click.echo("\n".join(line.rstrip() for line in buffer.getvalue().splitlines()))


def _print_below(columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], screen: Console) -> None:
    """Print the last column below the others, indented."""

    def line(cells: Sequence[str]) -> Text:
        return Text("  ".join(set_cell_size(*cell) for cell in zip(cells, widths[:-1], strict=True)).rstrip())

    screen.print(Text.assemble(line(columns[:-1]), f"\n    {columns[-1]}", style="bold"), soft_wrap=True)
    for row in rows:
        screen.print(line(row[:-1]), soft_wrap=True)
        screen.print(Padding(Text(row[-1]), (0, 0, 0, 4)))


def plain(text: str) -> str:
    """Replace what would move the cursor or colour the screen."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def ago(at: dt.datetime | None, now: dt.datetime) -> str:
    """Say how long ago something was."""
    return words(max(dt.timedelta(), now - at)) if at is not None else "-"


def _hint(error: KubeError) -> str:
    if isinstance(error, ConfigError):
        return ""
    if isinstance(error, NotFound):
        return "fleetwell manifests | kubectl apply -f - installs fleetwell's kinds; `fleetwell incidents` lists names"
    if isinstance(error, Unauthorized | Forbidden):
        return "kubectl auth whoami says who you are to the cluster; ask for the rights that the message names"
    if isinstance(error, Undecodable):
        return "fleetwell manifests | kubectl apply -f - gives the cluster the kinds of this version of fleetwell"
    return "kubectl cluster-info says whether the API server can be reached"
