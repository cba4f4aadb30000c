"""Values that several commands take: durations as people write them, and what a machine must have."""

from __future__ import annotations

import click

from fleetwell.api.fields import seconds
from fleetwell.probes.inventory import Expected, parse_expect


def duration(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a duration (``90s``, ``1h30m``) in seconds."""
    del ctx, param
    try:
        return seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def expectation(ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...]) -> Expected:
    """Read ``gpus=8,efa=32``, given once or several times."""
    del ctx, param
    try:
        return parse_expect([value] if isinstance(value, str) else value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
