"""InfiniBand and RoCE adapters: every RDMA device that is no EFA interface.

Are they there, are their ports up, do they stay up, are they as fast as they should be, and what do they count. Runs
inside the child :mod:`fleetwell.probes.sysfs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fleetwell.probes import nic_counters, nic_drivers, nic_links, nic_ports
from fleetwell.probes.nic_memory import NicMemory
from fleetwell.probes.nic_tree import Adapter, adapters
from fleetwell.probes.report import Report

PROBE = "infiniband"


def look(
    host_root: Path,
    expected: int | None,
    known: Mapping[str, str],
    *,
    gbps: float = 0.0,
    must_be_up: int | None = None,
    memory: NicMemory | None = None,
    read: list[Adapter] | None = None,
) -> Report:
    """Read sysfs. Where a memory was given, :func:`settle` has to follow once that is saved.

    :param expected: how many adapters the machine must have, where that is known.
    :param known: name → PCI address of those that it was seen to have; the names may change from boot to boot.
    :param gbps: rate that each port must have; 0 where nothing says it.
    :param must_be_up: how many of them must have a port that is up, where somebody said so.
    :param memory: what looks before this one counted; without it this one stands alone.
    :param read: the host's RDMA devices, where they were read already.
    """
    seen = Report(PROBE)
    table = nic_counters.limits()
    if read is None:
        read = adapters(host_root, nic_counters.wanted(table))
    found = [adapter for adapter in read if not adapter.is_efa]
    if not found and not expected:
        seen.absent("no InfiniBand or RoCE adapter")
        return seen
    stands_alone = memory is None
    if memory is None:
        memory = NicMemory(None, "", "", 0.0)
    seen.covers("host")
    for adapter in found:
        seen.nic(adapter.name, adapter.pci, adapter.driver)
        seen.covers(f"nic/{adapter.name}", f"nic/pci-{adapter.pci}")
    nic_drivers.judge_verbs(seen, host_root, found)
    _count(seen, expected, found, known)
    nic_ports.judge(seen, found, memory, must_be_up)
    nic_links.judge(seen, found, memory, gbps)
    nic_counters.judge(seen, found, memory, table)
    if stands_alone:
        settle(seen, memory)
    return seen


settle = nic_ports.settle


def _count(seen: Report, expected: int | None, found: list[Adapter], known: Mapping[str, str]) -> None:
    there = {adapter.pci for adapter in found}
    gone = {name: address for name, address in known.items() if address not in there}
    if expected is None or len(found) >= expected:
        seen.covers(*(f"nic/{name}" for name in gone))
        return
    said = f"{len(found)} InfiniBand or RoCE adapters of the {expected} that this machine must have"
    named = {f"nic/{adapter.name}" for adapter in found}
    if len(gone) == expected - len(found) and not any(f"nic/{name}" in named for name in gone):
        for name, address in gone.items():
            seen.fault("NicMissing", f"nic/{name}", f"{said}; none at {address}")
    else:
        seen.fault("NicMissing", "host", said)
