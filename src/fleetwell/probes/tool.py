"""Runs a vendor's tool inside a probe's child.

The agent kills the child's whole group at its own deadline and never waits for it, so a tool that cannot be killed may
hold the child as long as it likes.
"""

from __future__ import annotations

import subprocess


class NoAnswerError(Exception):
    """The tool gave nothing that could be judged: the probe's child ends with it, and the supervisor says so."""


def ask(tool: tuple[list[str], dict[str, str]], words: list[str], deadline: float) -> tuple[str, int]:
    """Run a tool (arguments before ours, environment) and give what it printed, on both streams, and its exit code.

    :raises NoAnswerError: it did not end within ``deadline`` seconds, could not be started, or died of a signal.
    """
    argv, environment = tool
    name = argv[-1].rpartition("/")[2]
    try:
        ended = subprocess.run(
            [*argv, *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=deadline,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"{name} {words[0]} did not end within {deadline:.0f} s") from None
    except OSError as error:
        raise NoAnswerError(f"{argv[-1]} could not be started: {error}") from error
    if ended.returncode < 0:
        raise NoAnswerError(f"{name} was ended by signal {-ended.returncode}")
    return ended.stdout.decode(errors="replace"), ended.returncode
