"""Run by path, in front of a worker: dies with the launcher, then becomes the worker.

``python -I -S worker_start.py LAUNCHER_PID PROGRAM ARGS…``. The kernel sends SIGKILL when the launcher goes, however it
goes, so that no worker of a lost launcher trains on or holds a GPU. It is a program of its own, because code between
fork and exec in the launcher could deadlock; and it imports nothing of ours, because it must cost milliseconds.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Arm the death signal and become the program."""
    launcher, program = int(arguments[0]), arguments[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != launcher:  # it died before the signal was armed
        sys.exit(f"the launcher {launcher} is gone")
    try:
        os.execvp(program[0], program)  # noqa: S606 - this is what the user asked to run, and no shell is wanted
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]!r}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
