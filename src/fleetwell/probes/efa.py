"""EFA interfaces, told by PCI vendor or driver.

Never by counting ``/sys/class/infiniband``, where adapters of others stand too; and never by the port's state: the
driver always says ACTIVE and LinkUp, whatever is true. Whether one lives, its admin queue's counters tell. Runs inside
the child :mod:`fleetwell.probes.sysfs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fleetwell.probes import nic_bus, nic_counters, nic_drivers, nic_links
from fleetwell.probes.nic_memory import NicMemory
from fleetwell.probes.nic_tree import EFA_DRIVER, Adapter, adapters
from fleetwell.probes.report import Report

PROBE = "efa"


def look(
    host_root: Path,
    expected: int | None,
    known: Iterable[str],
    *,
    gbps: float = 0.0,
    memory: NicMemory | None = None,
    read: list[Adapter] | None = None,
) -> Report:
    """Read sysfs.

    :param expected: how many EFA interfaces the machine must have, where that is known.
    :param known: names of the interfaces that this machine was seen to have.
    :param gbps: rate that each must have; 0 where nothing says it.
    :param memory: what looks before this one counted; without it this one stands alone.
    :param read: the host's RDMA devices, where they were read already.
    """
    seen = Report(PROBE)
    table = nic_counters.limits()
    if read is None:
        read = adapters(host_root, nic_counters.wanted(table))
    found = [adapter for adapter in read if adapter.is_efa]
    idle = nic_bus.efa(host_root, {adapter.pci for adapter in found})
    if any(adapter.pci == adapter.name for adapter in found):
        idle = []  # A tree that does not say which of them is at which address.
    if not found and not idle and not expected:
        seen.absent("no EFA interface")
        return seen
    if memory is None:
        memory = NicMemory(None, "", "", 0.0)
        seen.blind(memory.failure)
    seen.covers("host")
    for adapter in found:
        seen.nic(adapter.name, adapter.pci, EFA_DRIVER)
        seen.covers(f"nic/{adapter.name}", f"nic/pci-{adapter.pci}")
    explained = nic_drivers.judge_efa(seen, host_root, idle)
    nic_drivers.judge_verbs(seen, host_root, found)
    nic_drivers.judge_answers(seen, found)
    _count(seen, expected, [adapter.name for adapter in found], known, [one.address for one in idle], explained)
    nic_links.judge(seen, found, memory, gbps)
    nic_counters.judge(seen, found, memory, table)
    return seen


def _count(
    seen: Report, expected: int | None, found: list[str], known: Iterable[str], unbound: list[str], explained: int
) -> None:
    gone = [name for name in known if name not in found]
    if expected is None or len(found) >= expected:
        seen.covers(*(f"nic/{name}" for name in gone))
        return
    missing = expected - len(found) - explained
    if missing <= 0:
        return  # They are there, and why they have no driver is told.
    said = f"{len(found)} EFA interfaces of the {expected} that this machine must have"
    if unbound:
        said += f"; on the bus without an interface: {', '.join(unbound[:4])}"
    if len(gone) == missing:
        for name in gone:
            seen.fault("EfaMissing", f"nic/{name}", f"{said}; {name} is not among them")
    else:
        seen.fault("EfaMissing", "host", said)
