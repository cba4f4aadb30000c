"""Processes of the lab: each in a session of its own, writing to a log file, ended for certain.

Two lives are possible. A process that is *tied* ends with the Python process that started it, however that one ends.
One that is not outlives it; its identity is kept in a record file, from which a later Python process takes it up
again (``fleetwell lab up`` and, in another shell, ``fleetwell lab down``).
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import IO

import msgspec

from fleetwell.lab import sessions
from fleetwell.lab.sessions import Ended, Identity

DEFAULT_GRACE_S = 10.0

# Children of this Python process, kept so that they are reaped and their exit code is known.
_children: dict[Identity, subprocess.Popen[bytes]] = {}


class _Record(msgspec.Struct, frozen=True):
    name: str
    log: str
    pid: int
    started: int
    boot_id: str


class _Guardian:
    """The one guard of this Python process: a child that ends the tied ones when this process is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def watch(self, identity: Identity) -> None:
        with self._lock:
            process = self._process
            # A forked copy of this process must not speak for its parent: it gets a guard of its own.
            if process is None or self._owner != os.getpid() or process.poll() is not None:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", sessions.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    text=True,
                )
                self._process, self._owner = process, os.getpid()
            pipe: IO[str] | None = process.stdin
            if pipe is None:  # cannot be: it was asked for
                return
            pipe.write(f"{identity.pid} {identity.started}\n")
            pipe.flush()


_guardian = _Guardian()


@dataclass(frozen=True)
class LabProcess:
    """One process of the lab, started here or taken up from its record."""

    name: str
    identity: Identity
    log: Path
    record: Path | None = None

    @property
    def pid(self) -> int:
        """The process's number, which is also its session's and its group's."""
        return self.identity.pid

    def is_running(self) -> bool:
        """Tell whether this very process is still there."""
        child = _children.get(self.identity)
        if child is not None:
            return child.poll() is None
        return sessions.is_running(self.identity)

    def exit_code(self) -> int | None:
        """Return the exit code (negative: minus the signal); None while it runs or when it is not our child."""
        child = _children.get(self.identity)
        return None if child is None else child.poll()

    def signal(self, number: Signals) -> bool:
        """Send a signal to the process itself; False when it is gone."""
        return self.is_running() and sessions.send(self.identity, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; False when it still runs after that time."""
        gone = sessions.wait_gone(self.identity, timeout_s)
        self._reap()
        return gone

    def stop(self, grace_s: float = DEFAULT_GRACE_S) -> Ended:
        """End the process and its session (SIGTERM, ``grace_s`` seconds, SIGKILL) and remove its record."""
        ended = sessions.end(self.identity, grace_s=grace_s)
        self._reap()
        if self.record is not None and ended is not Ended.STUCK:
            self.record.unlink(missing_ok=True)
        return ended

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of its log; empty when there is none."""
        return tail(self.log, lines)

    def _reap(self) -> None:
        child = _children.get(self.identity)
        if child is not None:
            child.poll()


def start(
    name: str,
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    record: Path | None = None,
    tied: bool = False,
) -> LabProcess:
    """Start a process in its own session with both outputs appended to ``log``.

    ``env`` is the whole environment (None: ours). ``record`` is a file to keep its identity in, for :func:`attach`.
    ``tied`` ends it, first with SIGTERM, when this Python process is gone for whatever reason.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    identity = sessions.identify(child.pid)
    _children[identity] = child
    process = LabProcess(name, identity, log, record)
    if tied:
        _guardian.watch(identity)
    if record is not None:
        _write_record(record, process)
    return process


def attach(record: Path) -> LabProcess | None:
    """Take up the process that a record names; None when there is no record. It may have ended since."""
    try:
        kept = msgspec.json.decode(record.read_bytes(), type=_Record)
    except FileNotFoundError:
        return None
    return LabProcess(kept.name, Identity(kept.pid, kept.started, kept.boot_id), Path(kept.log), record)


def attach_all(folder: Path) -> list[LabProcess]:
    """Take up all processes that have a record (``*.json``) in this folder, in the order of their names."""
    found = (attach(record) for record in sorted(folder.glob("*.json")))
    return [process for process in found if process is not None]


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a text file; empty when it does not exist."""
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as text:
        return "".join(deque(text, maxlen=lines)).rstrip()
    return ""


def _write_record(path: Path, process: LabProcess) -> None:
    pid, started, boot = process.identity
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(_Record(process.name, str(process.log), pid, started, boot)))
    temporary.replace(path)
