"""InfiniBand and RoCE adapters: every RDMA device that is no EFA interface.

Are they there, are their ports up, do they stay up, are they as fast as they should be, and what do they count. Runs
inside the child :mod:`fleetwell.probes.sysfs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleetwell.probes import nic_bus, nic_counters, nic_drivers, nic_links, nic_ports, nic_sets
from fleetwell.probes.nic_bus import Idle
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
    gpus: int | None = None,
    memory: NicMemory | None = None,
    read: list[Adapter] | None = None,
) -> Report:
    """Read sysfs. Where a memory was given, :func:`settle` has to follow once that is saved.

    :param expected: how many adapters the machine must have, where that is known.
    :param known: name → PCI address of those that it was seen to have; the names may change from boot to boot.
    :param gbps: rate that each port must have; 0 where nothing says it.
    :param must_be_up: how many of them must have a port that is up, where somebody said so.
    :param gpus: how many GPUs the machine must have, where that is known: rails come in so many.
    :param memory: what looks before this one counted; without it this one stands alone.
    :param read: the host's RDMA devices, where they were read already.
    """
    seen = Report(PROBE)
    table = nic_counters.limits()
    if read is None:
        read = adapters(host_root, nic_counters.wanted(table))
    found = [adapter for adapter in read if not adapter.is_efa and adapter.is_physical]
    idle = nic_bus.mellanox(host_root, {adapter.pci for adapter in read})
    if any(adapter.pci == adapter.name for adapter in found):
        idle = []  # A tree that does not say which of them is at which address.
    if not found and not expected and all(one.lives for one in idle):
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
    nic_drivers.judge_answers(seen, found)
    rails = nic_sets.Rails(must_be_up, gpus)
    _count(seen, host_root, _Wanted(expected or 0, rails), found, idle, known)
    nic_ports.judge(seen, found, memory, rails)
    nic_links.judge(seen, found, memory, gbps, rails)
    nic_counters.judge(seen, found, memory, table)
    if stands_alone:
        settle(seen, memory)
    return seen


settle = nic_ports.settle


class _Wanted(NamedTuple):
    """How many adapters there must be."""

    most: int
    """From whatever tells it; the most that were ever seen, where nobody said it."""
    rails: nic_sets.Rails


def _count(
    seen: Report, host_root: Path, wanted: _Wanted, found: list[Adapter], idle: list[Idle], known: Mapping[str, str]
) -> None:
    there = {adapter.pci for adapter in found}
    held = nic_drivers.held(host_root, idle)
    gone = {name: address for name, address in known.items() if address not in there}
    there_are, missing = len(found), max(0, wanted.most - len(found))
    if wanted.rails.said is not None:
        meant, missing = nic_sets.meant(found, wanted.rails)
        there_are = len(meant)
    else:
        # Bonded to another one, moved into a pod's network namespace, or its RDMA switched off: it is there.
        missing -= sum(address in held for address in gone.values())
    missing -= nic_drivers.judge_mellanox(seen, host_root, idle, found, missing)
    if missing <= 0:
        seen.covers(*(f"nic/{name}" for name in gone))
        return
    said = f"{there_are} InfiniBand or RoCE adapters of the {wanted.most} that this machine must have"
    named = {f"nic/{adapter.name}" for adapter in found}
    lost = {name: address for name, address in gone.items() if address not in held}
    if len(lost) == missing and not any(f"nic/{name}" in named for name in lost):
        for name, address in lost.items():
            seen.fault("NicMissing", f"nic/{name}", f"{said}; none at {address}")
    else:
        seen.fault("NicMissing", "host", said)
