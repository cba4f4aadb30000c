"""Fuzzes the readers of the kernel log by coverage, for as long as one likes; pytest does not collect it.

``python tests/health/fuzz_kernel_log.py [SECONDS]`` (``make fuzz SECONDS=60``); needs atheris. What must hold is in
``kernel_log_promises.py``, and hypothesis asks it in every test run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped] # it ships none

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["fleetwell.health"]):
    from health.kernel_log_promises import hold_for_claim, hold_for_raw, hold_for_text


def one(data: bytes) -> None:
    """Try one input in one of the three ways."""
    way, body = data[:1], data[1:]
    if way < b"\x55":
        hold_for_claim(body.decode("utf-8", "replace"))
    elif way < b"\xaa":
        hold_for_raw(body.split(b"\x00"))
    else:
        hold_for_text(body)


SEEDS = (
    b"\x0031, pid=1, name=a, MMU Fault",
    b"\x00149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x0)",
    b"\x00154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    b"\x603,0,1,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x003,1,2,-;NVRM: fallen off the bus and is not responding to",
    b"\x603,0,1,-;NVRM: Xid (PCI:0000:b3:00): 74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000)",
    b"\x603,0,1,-;mlx5_core 0000:18:00.0: Port module event: module 0, Cable unplugged\x00",
    b"\xc0[ 1843.308145] NVRM: Xid (PCI:0000:b3:00): 79",
    b'\xc0{"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "MESSAGE": [78, 86, 82, 77], "_BOOT_ID": "a"}',
    b"\xc02025-05-11T10:35:49.123456+05:30 host kernel: [16450076.435595] nvme nvme1: I/O 1 QID 4 timeout, aborting",
    b"\xc0kern  :err   : 2025-01-25T10:34:54,859532+00:00 nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal",
)


def main() -> None:
    """Fuzz from the seeds; the exit code is not 0 when a promise did not hold, and the input is saved beside."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for seed in SEEDS:
        one(seed)
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=600", "-timeout=5"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
