"""A container of the lab: a local process in a session of its own, whose first process is PID 1 in all that matters.

As in a container, SIGTERM goes to the first process only, and when that one ends the rest is killed. It also ends with
the lab: a child of the lab's process is killed by the kernel when that process dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetwell.lab import sessions
from fleetwell.lab.sessions import Identity

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_MESSAGE_LIMIT = 4096
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0
"""Seconds between looks at what was killed and is still there."""
_ENDED = -1
"""No process begins so long before the boot."""
KILL_WAIT_SECONDS = 5.0
"""How long a killed container may take to end before that is worth a word."""


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
        self._family: set[Identity] = set()
        """Processes that were seen in it: some may have left its session since, and none may outlive it."""
        try:
            self._leader = sessions.identify(process.pid)
        except ProcessLookupError:
            # It has ended already: whoever has its number from now on is another one. What it left in its session
            # keeps the session's number.
            self._leader = Identity(process.pid, _ENDED, sessions.boot_id())

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
        termination_message.parent.mkdir(parents=True, exist_ok=True)
        termination_message.touch()
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
        """Wait for the first process, kill what it left behind, and wait for that, too.

        A container has ended when nothing of it is there. What sleeps in the kernel (state D) does not end by SIGKILL,
        so this may last for as long as the kernel likes.
        """
        code = await self._process.wait()
        pause = _FIRST_PAUSE
        while self.kill():
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        message = ""
        with contextlib.suppress(OSError):
            message = self._message.read_text(encoding="utf-8", errors="replace")[:_MESSAGE_LIMIT]
        return Exit(128 - code if code < 0 else code, -code if code < 0 else 0, message)

    def terminate(self) -> None:
        """Ask the first process to end, as a container runtime does."""
        self._family.update(self._running())
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> list[Identity]:
        """Kill everything in the container, and give what of it is still there."""
        running = self._running()
        self._family = set(running)
        for process in sorted(running, key=lambda one: one != self._leader):  # The first process hears of no death.
            sessions.send(process, signal.SIGKILL)
        return [process for process in running if sessions.is_running(process)]

    def left(self) -> list[int]:
        """Give the numbers of the processes that are in it."""
        return sorted(process.pid for process in self._running())

    def _running(self) -> list[Identity]:
        found = set(sessions.family(self._leader))
        return [*found, *(one for one in self._family - found if sessions.is_running(one))]


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
