"""The ``fleetwell`` command: one file per verb, loaded only when it is the one that was called.

Data goes to stdout and the rest to stderr; ``hint:`` lines say what to do next. An agent that starts must not pay for
the imports of the controller, so nothing here imports a verb before it is needed.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import sys
from typing import Final, NoReturn

import click

from fleetwell import __version__

VERBS = {
    "agent": "the node's process: watch the hardware, publish, carry out operations",
    "check": "look once at this machine's GPUs and adapters, and say what is wrong",
    "controller": "the cluster's process: decide and act, step by step, within the budget",
    "diagnose": "what is wrong with a machine, told from kernel log, nvidia-smi, DCGM, bug report or sysfs",
    "explain": "why a node is as it is, what comes next, and how to stop it",
    "faults": "every kind of fault: what it means, what is done about it, how it ends",
    "incidents": "open and past incidents; hold, release, approve or retry one",
    "lab": "a real control plane and virtual GPU nodes on this machine",
    "manifests": "print what a cluster needs before agents and controller start",
    "nodes": "GPU nodes and how they are",
    "prove": "the active test of this machine's GPUs",
    "run": "start training workers and keep them going; takes torchrun's flags",
}

_EXTRAS: Final = {"lab": "lab", "run": "train"}
"""Which extra brings what a verb imports, where it is not the agent's."""
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EIO}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        try:
            command = importlib.import_module(f"fleetwell.cli.{cmd_name}").command
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if missing.partition(".")[0] == "fleetwell":
                raise
            click.echo(f"error: fleetwell {cmd_name} needs {missing}, which is not installed", err=True)
            click.echo(f"hint: pip install 'fleetwell[{_EXTRAS.get(cmd_name, 'agent')}]'", err=True)
            sys.exit(1)
        if not isinstance(command, click.Command):
            raise TypeError(f"fleetwell.cli.{cmd_name} has no click command named `command`")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Click looks for near names among the commands that are loaded, and none is.
        near = difflib.get_close_matches(args[0], VERBS)
        if near and args[0] not in VERBS:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(VERBS.items()))


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fleetwell")
def cli() -> None:
    """Keep GPU fleets on Kubernetes well: find the GPU that cannot work, act step by step, keep training going."""


def main() -> NoReturn:
    """Run the command line."""
    _mend_streams()
    # Output in a pipe that was closed early (`fleetwell incidents | head`) is no error worth a traceback.
    try:
        cli.main(prog_name="fleetwell")
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        click.echo(f"error: {error.strerror}; what was written is not all of it", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered cannot go anywhere
        sys.exit(1)
    sys.exit(0)


def _mend_streams() -> None:
    """Make the standard streams such that no answer is lost for what they are.

    Where one was closed by whoever started us (``>&-``) Python has none. Where a character is not in the terminal's
    encoding Python would raise, so a GPU of which a log says something in another script would have no verdict.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 (it stays open to the end)
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
