"""How the children that are Python modules are started, at the least cost, and other programs without blocking.

``-S`` and ``-s`` leave out ``site``, which nothing here needs: where the packages lie is passed in ``PYTHONPATH``. Most
of a child's cost is its imports, so a look costs about 40 ms of CPU. A process that has them ready and forks would cost
a quarter of it, and hold 15 MiB on every node for as long as it lives; what is here is within the agent's budget.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

import fleetwell

_START = (
    "import gc, sys; gc.disable(); url = type(sys)('urllib.parse'); url.__getattr__ = lambda name: lambda *given: "
    "getattr(__import__('urllib.parse', fromlist=[name]), name)(*given); "
    "sys.modules[url.__name__] = url; import pathlib; del sys.modules[url.__name__]; "
    "main = __import__(sys.argv.pop(1), fromlist=['main']).main; gc.freeze(); gc.enable(); main()"
)
"""``-m`` without ``runpy``, and without looking for garbage in what is imported: 4 ms of 40. ``pathlib`` imports
``urllib.parse``, and with it ``ipaddress``, for ``as_uri`` alone, which few children call: 3 ms more. A stand-in is in
its place meanwhile, which imports the real one when it is called.
"""
PASSED_ON = "FLEETWELL_"
"""Prefix of the variables that a child gets from the agent's own environment."""


def module(name: str, settings: Mapping[str, object]) -> list[str]:
    """Give the command line of a child that is one of our modules.

    :param settings: what :func:`fleetwell.probes.report.settings` reads there.
    """
    return python(name, msgspec.json.encode(settings).decode())


def python(name: str, *arguments: str) -> list[str]:
    """Give the command line of one of our modules, whose ``main`` is called, with any arguments."""
    return [sys.executable, "-S", "-s", "-P", "-c", _START, f"fleetwell.probes.{name}", *arguments]


def program(argv: list[str], deadline: float) -> list[str]:
    """Give the command line that runs another program.

    The program may lie on a filesystem that hangs, and starting it would then hang too. So a Python that is certainly
    in memory is started first, sets the alarm that ends it should the agent die, and becomes that program.
    """
    become = "import os,signal,sys; signal.alarm(int(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"
    return [sys.executable, "-S", "-s", "-P", "-c", become, str(int(deadline) + 10), *argv]


@functools.cache
def environment() -> Mapping[str, str]:
    """Give a child's environment: as little as can be."""
    ours = str(Path(fleetwell.__file__).resolve().parent.parent)
    path = [ours, *(entry for entry in sys.path if entry.endswith("-packages") and entry != ours)]
    passed_on = {key: value for key, value in os.environ.items() if key.startswith(PASSED_ON)}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(path),
        **passed_on,
    }
