"""Tells an adapter that has no driver from one that is not there: the first is a fault of the machine's image."""

from __future__ import annotations

from pathlib import Path

from fleetwell.probes.nic_tree import Adapter
from fleetwell.probes.report import Report

MODULES = "sys/module"
DRIVERS = "sys/bus/pci/drivers"
FOREIGN_STACK = "mlx_compat"
"""Module that only another vendor's RDMA stack (OFED) brings: it replaces the kernel's own, which EFA was built for."""


def judge_unbound(seen: Report, host_root: Path, driver: str, unbound: list[str]) -> bool:
    """Judge devices that are on the bus and have no RDMA device; False where the tree does not show why."""
    if not unbound:
        return False
    shown = ", ".join(unbound[:4]) + (f" and {len(unbound) - 4} more" if len(unbound) > 4 else "")
    if (host_root / MODULES / FOREIGN_STACK).is_dir():
        said = f"without an RDMA device: {shown}; {FOREIGN_STACK} is loaded"
        seen.fault("NicDriverConflict", "host", said)
    elif (host_root / MODULES / driver).is_dir() or (host_root / DRIVERS / driver).is_dir():
        for address in unbound:
            seen.fault("EfaInitFailed", f"nic/pci-{address}", f"{driver} is loaded and has not taken {address}")
    elif (host_root / MODULES).is_dir():
        seen.fault("NicDriverMissing", "host", f"without a driver: {shown}; the module {driver} is not loaded")
    else:
        seen.blind(f"why {shown} have no RDMA device cannot be told: {MODULES} is not there")
        return False
    return True


def judge_verbs(seen: Report, host_root: Path, adapters: list[Adapter]) -> None:
    """See that programs can open the devices at all."""
    modules = host_root / MODULES
    if not adapters or not (modules / "ib_core").is_dir() or (modules / "ib_uverbs").is_dir():
        return
    if not (host_root / "sys/class/infiniband_verbs").is_dir():
        said = f"ib_uverbs is not loaded: no program can open {adapters[0].name} or any other RDMA device"
        seen.fault("NicDriverMissing", "host", said)
