"""One worker process: how it is started, what it left behind, and how it is signalled without ever waiting for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .blame import cause_of
from .output import OutputPump
from .protocol import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .channel import Channel

_START = str(Path(__file__).with_name("worker_start.py"))
Sinks = tuple[BinaryIO, BinaryIO]
"""Where workers' stdout and stderr go."""

_POLL = 0.05  # where the kernel has no pidfd
_LAST_WORDS = 1.0  # seconds for the pipes of a dead worker to close: a grandchild may hold them


class Worker:
    """A running rank, in a session of its own so that its children are ended with it."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self.rank = rank
        self.pid = process.pid
        self.channel = channel
        self.code: int | None = None
        self._process = process
        self._pumps: list[tuple[OutputPump, asyncio.ReadTransport]] = []

    @classmethod
    async def start(
        cls, rank: int, command: Sequence[str], environment: Mapping[str, str], channel: Channel, sinks: Sinks
    ) -> Worker:
        """Start the process and begin to pass its output on."""
        process = subprocess.Popen(  # noqa: ASYNC220 - the user's program; the fork is ours to wait for
            [sys.executable, "-I", "-S", _START, str(os.getpid()), *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        worker = cls(rank, process, channel)
        loop = asyncio.get_running_loop()
        for pipe, sink in ((process.stdout, sinks[0]), (process.stderr, sinks[1])):
            transport, pump = await loop.connect_read_pipe(partial(OutputPump, rank, sink), pipe)
            worker._pumps.append((pump, transport))
        return worker

    async def wait(self) -> int:
        """Wait for the exit, end what is left of its session, and collect its last words. Returns the exit status."""
        await self._gone()
        # Still a zombie here, so the number cannot be another process group's yet.
        self.signal(signal.SIGKILL)
        self.code = self._process.poll()
        if self.code is None:
            message = f"worker {self.pid} was reported gone by the kernel and cannot be reaped"
            raise AssertionError(message)
        await asyncio.wait([pump.closed for pump, _ in self._pumps], timeout=_LAST_WORDS)
        self.release()
        return self.code

    def signal(self, number: signal.Signals) -> None:
        """Signal the worker and its children, if any is left."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def release(self) -> None:
        """Let go of the pipes."""
        for _, transport in self._pumps:
            transport.close()

    def failure(self, node: int) -> Failure:
        """Describe the death."""
        code = self.code if self.code is not None else 1
        return Failure(node, self.rank, self.pid, code, cause_of(code), self._pumps[1][0].last_words)

    async def _gone(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            while self._running():  # noqa: ASYNC110 - without pidfd there is no event of the kernel to wait for
                await asyncio.sleep(_POLL)
            return
        gone = asyncio.Event()
        loop.add_reader(handle, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    def _running(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
