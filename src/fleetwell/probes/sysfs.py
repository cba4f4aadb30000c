"""The child that reads sysfs for :mod:`.pci`, :mod:`.efa` and :mod:`.infiniband`.

sysfs is quick to read, but a read of a sick device can hang. All three share one process and one reading of the RDMA
devices.
"""

from __future__ import annotations

import time
from pathlib import Path

from fleetwell.probes import attribute, efa, infiniband, nic_counters, nic_tree, pci, report
from fleetwell.probes.nic_memory import NicMemory
from fleetwell.probes.report import Report

PROBE = "sysfs"
BOOT_ID = "proc/sys/kernel/random/boot_id"


def main() -> None:
    """Look once."""
    given = report.settings()
    host_root = Path(str(given.get("host_root", "/")))
    bus = pci.look(host_root, _count(given, "expected"), _named(given, "known"))
    kept = given.get("nic_memory")
    memory = NicMemory(
        Path(str(kept)) if kept else None,
        str(given.get("serial", "")),
        attribute.text(host_root / BOOT_ID),
        time.clock_gettime(time.CLOCK_BOOTTIME),  # No step of the clock makes a rate.
    )
    report.leave(bus, *networks(host_root, given, memory))


def networks(host_root: Path, given: dict[str, object], memory: NicMemory) -> tuple[Report, Report]:
    """Look at the RDMA devices, and keep what the next look compares with."""
    read = nic_tree.adapters(host_root, nic_counters.wanted(nic_counters.limits()))
    elastic = efa.look(
        host_root,
        _count(given, "expected_nics"),
        _named(given, "known_nics"),
        gbps=_number(given, "efa_gbps"),
        memory=memory,
        read=read,
    )
    others = infiniband.look(
        host_root,
        _count(given, "expected_infiniband"),
        _named(given, "known_infiniband"),
        gbps=_number(given, "infiniband_gbps"),
        must_be_up=_count(given, "infiniband_up"),
        gpus=_count(given, "expected"),
        memory=memory,
        read=read,
    )
    memory.save()
    infiniband.settle(others, memory)
    return elastic, others


def _count(given: dict[str, object], name: str) -> int | None:
    value = given.get(name)
    return value if isinstance(value, int) else None


def _number(given: dict[str, object], name: str) -> float:
    value = given.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _named(given: dict[str, object], name: str) -> dict[str, str]:
    value = given.get(name)
    return {str(key): str(one) for key, one in value.items()} if isinstance(value, dict) else {}


if __name__ == "__main__":
    main()
