"""A container of the lab: a local process in a session of its own, whose first process is PID 1 in all that matters.

As in a container, SIGTERM goes to the first process only, and when that one ends the rest is killed. It also ends with
the lab: a child of the lab's process is killed by the kernel when that process dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_MESSAGE_LIMIT = 4096
KILL_WAIT_SECONDS = 5.0
"""How long a killed process is waited for; one that the kernel holds is left to it."""


@dataclass(frozen=True)
class Exit:
    """How a container ended, in Kubernetes' terms: 128 + n for a signal n."""

    code: int
    signal: int
    message: str

    @property
    def reason(self) -> str:
        """The reason that the kubelet gives."""
        return "Completed" if self.code == 0 else "Error"


class ContainerProcess:
    """One running container."""

    def __init__(self, process: asyncio.subprocess.Process, termination_message: Path) -> None:
        self._process = process
        self._message = termination_message

    @property
    def pid(self) -> int:
        """Process id of the first process, which is also its process group's."""
        return self._process.pid

    @classmethod
    async def start(
        cls, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, termination_message: Path
    ) -> ContainerProcess:
        """Start a program; its output is appended to ``log``.

        :raises OSError: the program cannot be started.
        """
        termination_message.unlink(missing_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # one prctl call, safe after fork
            )
        return cls(process, termination_message)

    async def wait(self) -> Exit:
        """Wait for the first process, then kill what it left behind."""
        code = await self._process.wait()
        self.kill()
        message = ""
        with contextlib.suppress(OSError):
            message = self._message.read_text(encoding="utf-8", errors="replace")[:_MESSAGE_LIMIT]
        return Exit(128 - code if code < 0 else code, -code if code < 0 else 0, message)

    def terminate(self) -> None:
        """Ask the first process to end, as a container runtime does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill everything in the container."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
