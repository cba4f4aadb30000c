"""Runs a probe in a process that may hang, flood, crash or lie, and never waits for it longer than it said it would.

``subprocess.run(timeout=…)`` and ``Popen.__exit__`` call ``wait()`` without a time limit after the kill, so a child in
uninterruptible sleep blocks its parent for ever. Here the parent only ever *watches*: it is told of the exit by a
pidfd, reads the pipes when they have something, and at the deadline kills the group, gives it a moment, and lets go.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import time
from typing import TYPE_CHECKING

import msgspec

from fleetwell.probes.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUTPUT_LIMIT = 1 << 20
"""Bytes of standard output, and of standard error, after which a child is killed: a full NVML answer is 20 KB."""
KILL_GRACE = 0.5
"""Seconds that a killed group may take to go before it is abandoned."""
POLL_INTERVAL = 0.2
"""Seconds between looks at a child where the kernel gives no pidfd (before 5.3, or behind a seccomp filter)."""


class Answer(msgspec.Struct, frozen=True):
    """It ended with exit code 0 and said something."""

    output: bytes
    seconds: float = 0.0


class Hung(msgspec.Struct, frozen=True):
    """It had not ended at its deadline."""

    deadline: float
    abandoned: bool
    """SIGKILL did not end it either: it is still there, and watched."""


class Crashed(msgspec.Struct, frozen=True):
    """It ended by a signal or with another exit code, or could not be started."""

    reason: str
    """E.g. ``signal 11 (SIGSEGV)``, ``exit code 3``, ``could not be started: …``."""
    stderr: str = ""
    output: bytes = b""
    """The end of what it printed: some programs complain there."""


class Nonsense(msgspec.Struct, frozen=True):
    """It said that all went well and gave no usable answer."""

    reason: str


class Outstanding(msgspec.Struct, frozen=True):
    """It was not started: the one before it hangs still."""

    pid: int
    since: float
    """When that one was started, by the monotonic clock."""


Outcome = Answer | Hung | Crashed | Nonsense | Outstanding


class _Running:
    """One process and everything that is held open for it."""

    def __init__(self, pid: int, stdout: Capture, stderr: Capture, started: float) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.started = started
        self.status: int | None = None
        self.ended = asyncio.Event()
        self.stirred = asyncio.Event()
        """It has ended or printed too much: either way there is nothing more to wait for."""
        stdout.on_limit = stderr.on_limit = self.stirred.set
        self._loop = asyncio.get_running_loop()
        self._poll: asyncio.TimerHandle | None = None
        self._pidfd = _open_pidfd(pid)
        if self._pidfd is None:
            self._poll = self._loop.call_later(POLL_INTERVAL, self._look)
        else:
            self._loop.add_reader(self._pidfd, self._look)

    @property
    def flooded(self) -> bool:
        """Whether it printed too much."""
        return self.stdout.exceeded or self.stderr.exceeded

    def kill(self) -> None:
        """Kill the whole group. It is safe as long as the leader is not reaped, since its number is not given anew."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def forget_output(self) -> None:
        """Stop reading: whoever still holds the other end of the pipes may keep it."""
        self.stdout.close()
        self.stderr.close()

    def unwatch(self) -> None:
        """Let go of the process altogether."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def _look(self) -> None:
        """Reap it if it has ended. Its number cannot have been reused: an unreaped child keeps it."""
        try:
            seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            self.status = 0  # Somebody else reaped it, so how it ended is lost; what it printed decides.
        else:
            if seen is None:
                if self._pidfd is None:
                    self._poll = self._loop.call_later(POLL_INTERVAL, self._look)
                return
            self.kill()  # Grandchildren, while the zombie still keeps the group's number.
            _, self.status = os.waitpid(self.pid, os.WNOHANG)
        self.unwatch()
        self.ended.set()
        self.stirred.set()


class SupervisedChild:
    """The one place for one probe's child: at most one is outstanding, whatever happens to it.

    :param name: what the child is called in errors.
    :param grace: seconds that a killed child may take to go before it is abandoned.
    :param limit: bytes of output after which it is killed.
    """

    def __init__(self, name: str, *, grace: float = KILL_GRACE, limit: int = OUTPUT_LIMIT) -> None:
        self.name = name
        self.abandoned = 0
        """How many children were ever abandoned here."""
        self._grace = grace
        self._limit = limit
        self._current: _Running | None = None

    @property
    def outstanding(self) -> int | None:
        """Give the process id of a child that is still there."""
        running = self._current
        return None if running is None or running.ended.is_set() else running.pid

    def interrupt(self) -> None:
        """Kill the child that runs now, if there is one: its run ends as a crash."""
        if self._current is not None and not self._current.ended.is_set():
            self._current.kill()

    async def gone(self) -> None:
        """Wait until no child is outstanding: after an abandoned one has ended, its probe may be tried again."""
        if self._current is not None:
            await self._current.ended.wait()

    async def run(self, argv: Sequence[str], *, deadline: float, env: Mapping[str, str]) -> Outcome:
        """Run a program to its end or its deadline, whichever comes first.

        :param argv: absolute path of the program, and its arguments.
        :param deadline: seconds it may take; this returns at most ``grace`` seconds later.
        :param env: its whole environment.
        """
        if self._current is not None and not self._current.ended.is_set():
            return Outstanding(pid=self._current.pid, since=self._current.started)
        try:
            running = self._start(argv, env)
        except OSError as error:
            return Crashed(reason=f"could not be started: {error}")
        self._current = running
        try:
            return await self._supervise(running, deadline)
        finally:
            if not running.ended.is_set():
                running.kill()
            running.forget_output()

    def close(self) -> None:
        """Kill what is outstanding and stop watching it, for the agent's own end."""
        if self._current is not None:
            self._current.kill()
            self._current.forget_output()
            self._current.unwatch()

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> _Running:
        # posix_spawn starts it as vfork does, so it costs the same whatever the agent's size.
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as ends:
            stdout, out = Capture.pipe(loop, keep=self._limit, limit=self._limit)
            ends.callback(os.close, out)
            stderr, err = Capture.pipe(loop, keep=4096, limit=self._limit)
            ends.callback(os.close, err)
            try:
                pid = os.posix_spawn(
                    argv[0],
                    list(argv),
                    dict(env),
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_DUP2, out, 1),
                        (os.POSIX_SPAWN_DUP2, err, 2),
                        *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable()),
                    ],
                    setsid=True,
                    setsigmask=[],
                    setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD],
                )
            except OSError:
                stdout.close()
                stderr.close()
                raise
        return _Running(pid, stdout, stderr, time.monotonic())

    async def _supervise(self, running: _Running, deadline: float) -> Outcome:
        await _within(deadline, running.stirred)
        ended_itself = running.ended.is_set()
        if not ended_itself:
            running.kill()
            await _within(self._grace, running.ended)
            self.abandoned += not running.ended.is_set()
        if running.flooded:
            return Nonsense(reason=f"it printed more than {self._limit} bytes and was killed")
        if not ended_itself:
            return Hung(deadline=deadline, abandoned=not running.ended.is_set())
        return self._judge(running)

    def _judge(self, running: _Running) -> Outcome:
        # All that the child itself wrote is in the pipe by now; end of file is not waited for, since a grandchild
        # that left the group may hold the other end for ever.
        running.stdout.drain()
        running.stderr.drain()
        code = os.waitstatus_to_exitcode(running.status or 0)
        stderr = running.stderr.tail().decode(errors="backslashreplace")
        if code < 0:
            return Crashed(reason=f"signal {-code} ({_signal_name(-code)})", stderr=stderr)
        if code > 0:
            return Crashed(reason=f"exit code {code}", stderr=stderr, output=running.stdout.tail()[-4096:])
        output = running.stdout.tail()
        if running.flooded:
            return Nonsense(reason=f"it printed more than {self._limit} bytes")
        if not output.strip():
            return Nonsense(reason="it ended with exit code 0 and printed nothing")
        return Answer(output=output, seconds=time.monotonic() - running.started)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _inheritable() -> list[int]:
    """Descriptors that a child would get: Python opens none so, but whoever started this process may have left some."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (names are wanted, and this is on the way of each start)
        with contextlib.suppress(OSError):  # The descriptor of the listing itself is closed by now.
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE}:
            return None
        raise


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time signal"
