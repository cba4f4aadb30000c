"""The workers of a proof: one process a device, so that one that hangs or crashes leaves the others' results standing.

They stay in the proof's own process group, which the agent kills as a whole. They are never waited for beyond the
deadline: one that sits in the kernel is killed, given a moment and left behind.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

import msgspec

OUTPUT_LIMIT = 1 << 20
"""Bytes of a worker's output beyond which it is killed."""
GRACE = 0.5
"""Seconds that killed workers may take to go."""
POLITE = 3.0
"""Seconds that a program may take to stop its work when it is asked to."""
_ERRORS_KEPT = 2048
Job = tuple[Sequence[str], Mapping[str, str]]
"""Command line and whole environment."""


class Ended(msgspec.Struct, frozen=True):
    """How a worker ended."""

    output: bytes
    errors: str
    code: int | None
    """Exit code, minus the signal's number; None: it was not done by the deadline, or printed too much."""

    @property
    def trouble(self) -> str:
        """Say what went wrong; empty where it ended well."""
        if self.code == 0:
            return ""
        last = (self.errors.strip().splitlines() or [""])[-1][-120:]
        if self.code is None:
            said = "printed too much" if len(self.output) > OUTPUT_LIMIT else "no answer within its time"
        elif self.code < 0:
            said = f"ended by {_signal(-self.code)}"
        else:
            said = f"exit code {self.code}"
        return f"{said}: {last}" if last else said


class _Worker:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.output = bytearray()
        self.errors = bytearray()
        self.process = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_interruptible,  # noqa: PLW1509 (one sigaction, which is safe after fork)
        )
        self.streams = {self.process.stdout: self.output, self.process.stderr: self.errors}
        self.killed = False

    def stop(self, with_signal: int) -> None:
        if self.process.poll() is None:
            self.killed = True
            self.process.send_signal(with_signal)

    def ended(self) -> Ended:
        for stream in self.streams:
            if stream is not None:
                stream.close()
        code = None if self.killed else self.process.poll()
        return Ended(output=bytes(self.output), errors=self.errors.decode(errors="replace"), code=code)


def _interruptible() -> None:
    """A shell that starts us in the background has SIGINT ignored, and a program would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(jobs: Mapping[str, Job], within: float, *, polite: bool = False) -> dict[str, Ended]:
    """Run programs side by side, to their end or the deadline.

    :param jobs: by name.
    :param within: seconds; this returns a moment later at most.
    :param polite: ask a program to stop by SIGINT first: it has work under way elsewhere that only it can stop.
    """
    end = time.monotonic() + within
    workers: dict[str, _Worker] = {}
    results: dict[str, Ended] = {}
    for name, (argv, env) in jobs.items():
        try:
            workers[name] = _Worker(argv, env)
        except OSError as error:
            results[name] = Ended(output=b"", errors=f"{argv[0]} could not be started: {error}", code=127)
    with selectors.DefaultSelector() as selector:
        for worker in workers.values():
            for stream in worker.streams:
                if stream is not None:
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ, worker)
        _collect(selector, workers, end)
        if polite:
            _stop(selector, workers, signal.SIGINT, POLITE)
        _stop(selector, workers, signal.SIGKILL, GRACE)
    return results | {name: worker.ended() for name, worker in workers.items()}


def _stop(selector: selectors.BaseSelector, workers: Mapping[str, _Worker], with_signal: int, grace: float) -> None:
    running = {name: worker for name, worker in workers.items() if worker.process.poll() is None}
    for worker in running.values():
        worker.stop(with_signal)
    if running:
        _collect(selector, running, time.monotonic() + grace)


def _collect(selector: selectors.BaseSelector, workers: Mapping[str, _Worker], end: float) -> None:
    """Read until all have ended. The end of a pipe is not waited for: a grandchild may hold it for ever."""
    while (left := end - time.monotonic()) > 0 and any(w.process.poll() is None for w in workers.values()):
        for key, _ in selector.select(min(left, 0.05)):
            _read(selector, key)
        if not selector.get_map():
            time.sleep(min(max(left, 0.0), 0.01))  # Pipes are closed, the process is about to go.
    for _ in range(OUTPUT_LIMIT >> 15):  # What is in the pipes by now, and no more than may be in them.
        if not [key for key, _ in selector.select(0) if _read(selector, key)]:
            return


def _read(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bool:
    worker: _Worker = key.data
    try:
        chunk = os.read(key.fd, 1 << 16)
    except BlockingIOError:
        return False
    if not chunk:
        selector.unregister(key.fileobj)
        return True
    kept = worker.streams[key.fileobj]  # type: ignore[index]  # what was registered is one of its streams
    kept += chunk
    if kept is worker.errors:
        del kept[:-_ERRORS_KEPT]
    elif len(kept) > OUTPUT_LIMIT:
        worker.stop(signal.SIGKILL)
        selector.unregister(key.fileobj)
    return True


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
