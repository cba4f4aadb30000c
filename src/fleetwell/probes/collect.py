"""The child that gathers what a person or a vendor asks for first: kernel log, ``nvidia-smi -q``, driver versions."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from fleetwell.probes import report
from fleetwell.probes.driver import program

KERNEL_LOG_LIMIT = 16 << 20
RECORD_LIMIT = 16 << 10


def main() -> None:
    """Gather everything into one folder and print where it is."""
    given = report.settings()
    host_root, folder = Path(str(given["host_root"])), Path(str(given["folder"]))
    folder.mkdir(parents=True, exist_ok=True)
    _kernel_log(host_root / "dev/kmsg", folder / "kernel.log")
    for name in ("proc/driver/nvidia/version", "proc/cmdline", "proc/modules"):
        with contextlib.suppress(OSError):
            (folder / name.replace("/", "-")).write_bytes((host_root / name).read_bytes())
    tool = program(host_root, "nvidia-smi")
    if tool is not None:
        with (folder / "nvidia-smi.txt").open("wb") as output:
            # Without a time limit: the agent that started this process kills the whole group at the deadline.
            subprocess.run([tool, "-q"], stdout=output, stderr=subprocess.STDOUT, check=False)
    sys.stdout.write(f"{sum(1 for _ in folder.iterdir())} files in {folder} on this node\n")


def _kernel_log(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError), target.open("wb") as output:
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while output.tell() < KERNEL_LOG_LIMIT:
                try:
                    record = os.read(descriptor, RECORD_LIMIT)
                except BrokenPipeError:
                    continue
                except BlockingIOError:
                    break
                if not record:
                    break
                output.write(record)
        finally:
            os.close(descriptor)


if __name__ == "__main__":
    main()
