"""Who a process is, and how a process that leads its own session is ended with everything in it.

A number alone does not name a process: it is given to somebody else once the first owner is gone. So a process is
named by its number, the moment it started and the boot it started in, and a signal goes through a pidfd that was
opened before that was checked. Only the standard library is used, because this file is also run as a program (see
:func:`_guard`): a guard that survives its parent's SIGKILL and then ends what the parent had started.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_AFTER_KILL_S = 5.0
_GUARD_GRACE_S = 10.0


class Identity(NamedTuple):
    """One process, told apart from a later one with the same number."""

    pid: int
    started: int
    """Clock ticks since boot, field 22 of /proc/PID/stat (proc(5))."""
    boot_id: str


class Ended(StrEnum):
    """How a process that was asked to end did so."""

    ALREADY_GONE = "already-gone"
    TERMINATED = "terminated"
    KILLED = "killed"
    STUCK = "stuck"
    """It has SIGKILL and is still there (state D); nothing more can be done from user space."""


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the name in parentheses and may itself hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))


def boot_id() -> str:
    """Return the id of this boot of this machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> Identity:
    """Name a process that exists now (a zombie counts); ProcessLookupError when there is none."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(f"there is no process {pid}")
    return Identity(pid, stat.started, boot_id())


def is_running(identity: Identity) -> bool:
    """Tell whether this very process is there and not a zombie."""
    stat = _stat(identity.pid)
    return (
        stat is not None
        and stat.state not in "ZX"
        and stat.started == identity.started
        and identity.boot_id == boot_id()
    )


@contextlib.contextmanager
def _opened(identity: Identity) -> Iterator[int | None]:
    """Open a pidfd of this very process; None when it is gone."""
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        # Checked after opening: from here on the descriptor cannot come to mean another process.
        yield fd if is_running(identity) else None
    finally:
        os.close(fd)


def send(identity: Identity, number: signal.Signals) -> bool:
    """Send a signal to this very process; False when it is gone."""
    with _opened(identity) as fd:
        if fd is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
            return True
        return False


def wait_gone(identity: Identity, timeout_s: float) -> bool:
    """Wait until the process has ended, without reaping it; False when it is still there after the time."""
    with _opened(identity) as fd:
        if fd is None:
            return True
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_s) * 1000))


def members(leader: Identity) -> list[Identity]:
    """List the running processes in the session that this process leads or led, itself included.

    While one of them lives, the kernel gives the number to nobody else, so a session with this number is this one
    unless a process with the same number and another start is there.
    """
    return [process for process, stat in _all_of(leader).items() if stat.session == leader.pid]


def family(leader: Identity) -> list[Identity]:
    """List the members of a session and all their descendants, those that made a session of their own included.

    One whose parents are gone belongs to nobody that could be named any more: ask while they live.
    """
    everybody = _all_of(leader)
    found = {process.pid: process for process, stat in everybody.items() if stat.session == leader.pid}
    grown = True
    while grown:
        new = {one.pid: one for one, stat in everybody.items() if stat.parent in found and one.pid not in found}
        found |= new
        grown = bool(new)
    return list(found.values())


def _all_of(leader: Identity) -> dict[Identity, _Stat]:
    """Look at all running processes; none where the session's number is somebody else's by now."""
    if leader.boot_id != boot_id():
        return {}
    found = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        stat = _stat(pid)
        if stat is None:
            continue
        if pid == leader.pid and stat.started != leader.started:
            return {}
        if stat.state not in "ZX":
            found[Identity(pid, stat.started, leader.boot_id)] = stat
    return found


def end(leader: Identity, *, grace_s: float) -> Ended:
    """End a session: SIGTERM to its leader, up to ``grace_s`` seconds, then SIGKILL to all that is left of it.

    The leader gets the time to end its own children in its own order. Takes at most ``grace_s`` plus 5 s, whatever
    the processes do.
    """
    result = Ended.ALREADY_GONE
    if send(leader, signal.SIGTERM):
        send(leader, signal.SIGCONT)  # a stopped process acts on SIGTERM only once it is continued
        result = Ended.TERMINATED if wait_gone(leader, grace_s) else Ended.KILLED
    left = members(leader)
    for process in left:
        send(process, signal.SIGKILL)
    deadline = time.monotonic() + _AFTER_KILL_S
    gone = [wait_gone(process, deadline - time.monotonic()) for process in left]
    return result if all(gone) else Ended.STUCK


def _guard() -> None:
    """Read ``PID STARTED`` lines until the writer is gone, then end those processes.

    The kernel's own PR_SET_PDEATHSIG is not used: it fires when the *thread* that forked ends, which in a thread
    pool is long before the program does, and it reaches one process instead of a session.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    boot = boot_id()
    guarded = []
    for line in sys.stdin:
        pid, started = line.split()
        guarded.append(Identity(int(pid), int(started), boot))
    # All are asked at once, so that the whole takes one grace period and not one for each.
    for process in guarded:
        send(process, signal.SIGTERM)
        send(process, signal.SIGCONT)
    deadline = time.monotonic() + _GUARD_GRACE_S
    for process in guarded:
        wait_gone(process, deadline - time.monotonic())
        end(process, grace_s=0.0)


if __name__ == "__main__":
    _guard()
