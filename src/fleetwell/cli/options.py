"""Values that several commands take: durations as people write them, and what a machine must have."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import click

from fleetwell.api.fields import seconds
from fleetwell.probes.inventory import Expected, instance_types, parse_expect

_VERSION: Final = re.compile(r"\d{3}(\.\d{1,4}){0,3}", re.ASCII)
"""NVIDIA's data center drivers, since the first that logs an Xid in today's form: ``570``, ``570.133.20``."""
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def duration(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a duration (``90s``, ``1h30m``) in seconds; a number without a unit is seconds."""
    del ctx, param
    try:
        return float(value) if _SECONDS.fullmatch(value) else seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def some_time(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a duration that must be longer than none."""
    given = duration(ctx, param, value)
    if not given:
        raise click.BadParameter(f"{value!r} is no time at all")
    return given


def timed(
    name: str, default: str, help_text: str, *, read: Callable[[click.Context, click.Parameter, str], float] = duration
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an option that takes a duration."""
    return click.option(name, callback=read, default=default, show_default=True, metavar="DURATION", help=help_text)


def expectation(ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...]) -> Expected:
    """Read ``gpus=8,efa=32``, given once or several times."""
    del ctx, param
    try:
        return parse_expect([value] if isinstance(value, str) else value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def driver(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Read the version of a driver, or only its branch."""
    del ctx, param
    if value and _VERSION.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is no driver version: write it like 570.133.20")
    return value


def instance_type(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Read the name of an instance type, in the spelling of its cloud: people write capitals as they like."""
    del ctx, param
    written = value.strip()
    return next((known for known in instance_types() if known.lower() == written.lower()), written)
