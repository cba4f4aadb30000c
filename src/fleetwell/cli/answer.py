"""How ``diagnose``, ``check`` and ``prove`` answer: the same text or JSON, and exit codes that a monitor can rely on.

0 well, 1 bad, 2 could not tell, 3 called wrongly. Whatever else goes wrong in here is a 2: a broken command must not
be taken for a broken GPU, nor for a healthy one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from fleetwell.diagnose.diagnosis import EXIT_UNKNOWN, EXIT_USAGE, Diagnosis, headline, text

F = TypeVar("F", bound=Callable[..., Any])


class WronglyCalledError(click.UsageError):
    """The command line makes no sense; nothing was judged."""

    exit_code = EXIT_USAGE


class AnswerCommand(click.Command):
    """A command whose exit code is the answer."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the command line; a wrong one is a 3, which click would call 2."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise WronglyCalledError(error.format_message(), error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; a failure of its own is a 2, which Python would call 1."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _interrupt)
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise WronglyCalledError(error.format_message(), error.ctx) from error
        except (click.exceptions.Exit, SystemExit):
            raise
        except (KeyboardInterrupt, click.Abort):
            click.echo("error: interrupted before there was an answer", err=True)
        except Exception as error:
            # Any failure whatever: Python would end with 1, which says that a GPU is bad.
            click.echo(f"error: {type(error).__name__} while judging: {error}; there is no answer", err=True)
            click.echo("hint: FLEETWELL_TRACEBACK=1 shows where; please report it", err=True)
            if os.environ.get("FLEETWELL_TRACEBACK"):
                raise
        sys.exit(EXIT_UNKNOWN)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """End as Ctrl-C does. Children have sessions of their own: without this a proof would go on for hours."""
    del number, frame
    raise KeyboardInterrupt


def answering(function: F) -> F:
    """Add the options that say how to answer."""
    form = click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json", "line"]),
        default="text",
        show_default=True,
        help="Form; line: only the first line of the text, for a monitor.",
    )
    strict = click.option(
        "--strict", is_flag=True, help="Exit code 1 also for what asks for no more than another start of the work."
    )
    return form(strict(function))


def give(diagnosis: Diagnosis, *, output: str, strict: bool) -> NoReturn:
    """Print the answer and end with its exit code."""
    match output:
        case "json":
            said = msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode()
        case "line":
            said = headline(diagnosis)
        case _:
            said = text(diagnosis)
    code = diagnosis.exit_code(strict=strict)
    try:
        click.echo(said)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has seen enough; the exit code is still the answer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        click.echo(
            f"error: the answer cannot be written: {error.strerror or error}; what is there is no answer", err=True
        )
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_UNKNOWN
    sys.exit(code)
