"""A child process that asks the mock NVML through the real bindings, and a clock that a test sets."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from fleetwell.lab.hardware import Hardware

# An expression over `p` (pynvml, initialised) and `d` (the handles that could be had) → its value.
Ask: TypeAlias = Callable[..., Any]

_CHILD = """
import json, sys
import pynvml as p
try:
    p.nvmlInit()
    d = {}
    for index in range(p.nvmlDeviceGetCount()):
        try:
            d[index] = p.nvmlDeviceGetHandleByIndex(index)
        except p.NVMLError:
            pass
    answers = [eval(question) for question in sys.argv[1:]]
except p.NVMLError as error:
    answers = [{"error": error.value}]
print(json.dumps(answers[0] if len(answers) == 1 else answers))
"""


def asked(hardware: Hardware, *questions: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *questions],
        env={**os.environ, **hardware.environment()},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return json.loads(done.stdout)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now
