"""The active test before a node gets work again.

    python -m fleetwell.probes.proof --level quick|medium|long [--host-root DIR] [--expect-gpus N]
        [--device auto|cuda|cpu] [--deadline SECONDS]

It prints one JSON object, ``{"probe": "proof", "results": [{"check", "verdict", "detail"}, …]}``, within its deadline
and ends with exit code 0; verdicts are those of :mod:`fleetwell.health.vocabulary`. A detail that is not OK begins with
``FAULT on COMPONENT: ``, e.g. ``GpuProofFailed on gpu/GPU-…: byte offset 0x…``.

Passive checks say that nothing complains; this shows that the thing works. The work is done by workers, one process a
device: one that hangs or crashes leaves what it had found, and what the others find, standing. A check that was not
carried out is UNKNOWN and never a pass. This process itself touches no driver, so it always answers.

- quick: driver, memory (a part of it), compute (a few products), on every device.
- medium: memory (nearly all), compute under load, clocks, host link; then, over all devices, agreement, peer links and
  collective; then dcgm, DCGM's diagnostic 2 where it is installed.
- long: the same for longer, with more patterns and inputs, and DCGM's diagnostic 4 where hours are left, else 3.

How much of each, and what must be reached: ``data/proof_thresholds.toml``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from fleetwell.probes import proof_rows, report
from fleetwell.probes.proof_rows import Row
from fleetwell.probes.proof_stages import Asked, Device, Proof
from fleetwell.probes.proof_thresholds import thresholds


def main() -> None:
    """Run the proof and print its results."""
    parser = argparse.ArgumentParser(prog="fleetwell.probes.proof", description="Prove that this node's GPUs work.")
    parser.add_argument("--level", choices=list(thresholds().levels), default="quick")
    parser.add_argument("--host-root", type=Path, default=Path("/"))
    parser.add_argument("--expect-gpus", type=int, default=None)
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.AUTO)
    parser.add_argument("--deadline", type=float, default=300.0)
    given = parser.parse_args()
    signal.setitimer(signal.ITIMER_REAL, given.deadline + report.ENDURANCE)
    asked = Asked(given.level, given.host_root, given.expect_gpus, given.device, given.deadline)
    rows: list[Row] = []
    try:
        rows.extend(Proof(asked).run())
    except OSError as error:  # No process could be started, no folder made: the rows until then are in the list.
        rows.append(Row("proof", "host", "UNKNOWN", f"it could not go on: {error}"))
    sys.stdout.write(proof_rows.encode(rows) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
