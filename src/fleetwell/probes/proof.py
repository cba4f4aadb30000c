"""The active test before a node gets work again: ``python -m fleetwell.probes.proof --level quick``.

Passive checks say that nothing complains; this shows that the thing works: every GPU is there and the driver has no
complaint of it, memory can really be allocated and holds what is written into it, and a computation gives the right
result. What could not be run is UNKNOWN and never a pass. torch is imported only where there is CUDA to use it with:
the import alone takes seconds. Without CUDA (a virtual node, a machine without GPUs) the same logic runs on the CPU.
"""

from __future__ import annotations

import argparse
import ctypes
import enum
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

from fleetwell.probes import proof_cpu, report
from fleetwell.probes.driver import cuda

ORDER = ("OK", "CONFIG", "UNKNOWN", "BAD")


class Device(enum.StrEnum):
    """Where the test computes."""

    AUTO = "auto"
    """CUDA where there are GPUs; the CPU where NVML is a virtual node's or lists none."""
    CUDA = "cuda"
    CPU = "cpu"


class Results:
    """What the checks gave, in the form of the operation's status."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []

    def add(self, check: str, verdict: str, detail: str) -> None:
        """Note a check's result."""
        self.rows.append({"check": check, "verdict": verdict, "detail": detail[: report.EVIDENCE_LIMIT]})

    def encode(self) -> str:
        """Give the proof as the agent reads it."""
        return json.dumps({"probe": "proof", "results": self.rows})


def main() -> None:
    """Run the proof and print its results."""
    parser = argparse.ArgumentParser(prog="fleetwell.probes.proof", description="Prove that this node's GPUs work.")
    parser.add_argument("--level", choices=["quick"], default="quick")
    parser.add_argument("--host-root", type=Path, default=Path("/"))
    parser.add_argument("--expect-gpus", type=int, default=None)
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.AUTO)
    parser.add_argument("--deadline", type=float, default=300.0)
    given = parser.parse_args()
    signal.setitimer(signal.ITIMER_REAL, given.deadline + report.ENDURANCE)
    results = Results()
    gpus = _driver(results, given.host_root, given.expect_gpus)
    _compute(results, _device(given.device, gpus), given.host_root, gpus)
    sys.stdout.write(results.encode() + "\n")
    sys.stdout.flush()
    os._exit(0)


def _driver(results: Results, host_root: Path, expected: int | None) -> int:
    """Ask the driver; give the number of GPUs that answer."""
    try:
        from fleetwell.probes import nvml  # noqa: PLC0415 (a machine without the binding can still say so)
    except ImportError as error:
        results.add("driver", "UNKNOWN" if expected else "OK", f"NVML cannot be asked: {error}")
        return 0
    seen = json.loads(nvml.look(host_root, expected, {}).encode())
    gpus = len(seen["inventory"]["gpus"])
    if seen["absent"]:
        results.add("driver", "UNKNOWN" if expected else "OK", seen["absent"])
    elif not seen["observations"]:
        results.add("driver", "OK", f"{gpus} GPUs answer and the driver has no complaint")
    for fault in seen["observations"]:
        verdict = fault.get("verdict") or "BAD"
        results.add("driver", verdict, f"{fault['fault']} on {fault['component']}: {fault['evidence']}")
    return gpus


def _device(asked: Device, gpus: int) -> Device:
    if asked is not Device.AUTO:
        return asked
    return Device.CPU if gpus == 0 or "FLEETWELL_NVML_STATE" in os.environ else Device.CUDA


def _compute(results: Results, device: Device, host_root: Path, gpus: int) -> None:
    if device is Device.CPU:
        results.add("memory", *proof_cpu.memory())
        results.add("compute", *proof_cpu.compute())
        return
    path = cuda(host_root)
    if path is None:
        results.add("compute", "UNKNOWN", f"no libcuda.so.1 in any driver root below {host_root}: nothing was computed")
    elif importlib.util.find_spec("torch") is None:
        results.add("compute", "UNKNOWN", "torch is not installed here: nothing was computed")
    else:
        try:
            # torch asks for libcuda.so.1 by name, and gets the one that is loaded already. By itself it would search
            # the image's own paths, where no runtime class has put the driver.
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            results.add("compute", "UNKNOWN", f"{path} cannot be loaded ({error}): nothing was computed")
            return
        from fleetwell.probes import proof_cuda  # noqa: PLC0415 (imports torch)

        for row in proof_cuda.prove(gpus):
            results.add(*row)


if __name__ == "__main__":
    main()
