"""The child that resets one GPU: it becomes ``nvidia-smi --gpu-reset``, found in the driver's own root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fleetwell.probes import report
from fleetwell.probes.driver import library, program


def main() -> None:
    """Replace this process by the driver's program, which resets the GPU only when nobody uses it."""
    given = report.settings()
    host_root = Path(str(given["host_root"]))
    tool = program(host_root, "nvidia-smi")
    if tool is None:
        sys.exit(f"no nvidia-smi in any driver root below {host_root}; the GPU was not reset")
    found = library(host_root)
    environment = dict(os.environ)
    if found is not None:
        environment["LD_LIBRARY_PATH"] = str(found.parent)
    os.execve(tool, [str(tool), "--gpu-reset", "-i", str(given["uuid"])], environment)  # noqa: S606 (no shell: that is the point)


if __name__ == "__main__":
    main()
