"""Tells an adapter that has no driver from one that is not there: the first is a fault of the machine's image."""

from __future__ import annotations

from pathlib import Path

from fleetwell.probes.attribute import text
from fleetwell.probes.nic_bus import Idle, are_of_one_namespace
from fleetwell.probes.nic_tree import Adapter
from fleetwell.probes.report import Report

MODULES = "sys/module"
DRIVERS = "sys/bus/pci/drivers"
RDMA_OF_MLX5 = "sys/bus/auxiliary/drivers/mlx5_ib.rdma"
FOREIGN_STACK = "mlx_compat"
"""Module that only another vendor's RDMA stack (OFED) brings: it replaces the kernel's own, which EFA was built for."""
VERBS = "sys/class/infiniband_verbs"
MLX5, MLX5_RDMA = "mlx5_core", "mlx5_ib"


def judge_efa(seen: Report, host_root: Path, idle: list[Idle]) -> int:
    """Judge EFA devices that are on the bus and have no interface; give for how many it is known why."""
    elsewhere = [one for one in idle if _is_elsewhere(host_root, one, "efa")]
    _say_elsewhere(seen, elsewhere)
    unbound = [one.address for one in idle if one not in elsewhere]
    if not unbound:
        return len(elsewhere)
    shown = _shown(unbound)
    if (host_root / MODULES / FOREIGN_STACK).is_dir():
        said = f"without an RDMA device: {shown}; {FOREIGN_STACK} is loaded"
        seen.fault("NicDriverConflict", "host", said)
    elif (host_root / MODULES / "efa").is_dir() or (host_root / DRIVERS / "efa").is_dir():
        for address in unbound:
            seen.fault("EfaInitFailed", f"nic/pci-{address}", f"efa is loaded and gives no interface for {address}")
    elif (host_root / MODULES).is_dir():
        seen.fault("NicDriverMissing", "host", f"without a driver: {shown}; the module efa is not loaded")
    else:
        seen.blind(f"why {shown} have no RDMA device cannot be told: {MODULES} is not there")
        return len(elsewhere)
    return len(idle)


def judge_mellanox(seen: Report, host_root: Path, idle: list[Idle], found: list[Adapter], missing: int) -> int:
    """Judge ConnectX and BlueField functions that are on the bus and have no RDMA device.

    :param found: the adapters that have one.
    :param missing: how many adapters there are too few.
    :returns: for how many of those it is known why.
    """
    loaded = (host_root / MODULES / MLX5).is_dir() or (host_root / DRIVERS / MLX5).is_dir()
    has_rdma = any(adapter.driver == MLX5 for adapter in found) or (host_root / RDMA_OF_MLX5).is_dir()
    has_rdma = has_rdma or (host_root / MODULES / MLX5_RDMA).is_dir()
    dead = [one for one in idle if loaded and not one.driver]
    elsewhere: list[Idle] = []
    if are_of_one_namespace(host_root):
        elsewhere = [one for one in idle if one.driver == MLX5]
    elif (host_root / MODULES / MLX5_RDMA).is_dir() or (host_root / RDMA_OF_MLX5).is_dir():
        dead += [one for one in idle if one.driver == MLX5 and not one.lives]
    for one in dead:
        why = f"{MLX5} has made nothing of it" if one.driver else f"{MLX5} is loaded and could not start it"
        seen.fault("NicInitFailed", f"nic/pci-{one.address}", f"{one.address} is on the bus, and {why}")
    seen.covers(*(f"nic/pci-{one.address}" for one in idle))
    _say_elsewhere(seen, elsewhere if missing > 0 else [])
    explained = len(dead) + len(elsewhere)
    if missing > explained and not has_rdma and (host_root / MODULES).is_dir():
        waiting = [one.address for one in idle if one.driver in {MLX5, ""} and one not in dead]
        if waiting:
            module = MLX5_RDMA if loaded else MLX5
            said = f"without an RDMA device: {_shown(waiting)}; the module {module} is not loaded"
            seen.fault("NicDriverMissing", "host", said)
            explained += len(waiting)
    return explained


def judge_answers(seen: Report, adapters: list[Adapter]) -> None:
    """See that the devices are still on the bus: what else sysfs says of one that left it is what it last was."""
    for adapter in adapters:
        if adapter.is_physical and not adapter.answers:
            said = f"the configuration space of {adapter.pci} reads as ones: it does not answer on the bus"
            seen.fault("NicPcieFatal", f"nic/{adapter.name}", said)


def held(host_root: Path, idle: list[Idle]) -> set[str]:
    """Give the addresses of those that are there and in somebody's hands: bonded, passed on, or without RDMA."""
    hidden = are_of_one_namespace(host_root)
    return {one.address for one in idle if one.lives or one.driver not in {"", MLX5} or (hidden and one.driver)}


def judge_verbs(seen: Report, host_root: Path, adapters: list[Adapter]) -> None:
    """See that programs can open the devices at all."""
    openable = _openable(host_root)
    if openable:
        for adapter in adapters:
            if adapter.name not in openable:
                said = f"no verbs device for {adapter.name} in {VERBS}: no program can open it, whatever its port says"
                seen.fault("NicInitFailed", f"nic/{adapter.name}", said)
        return
    modules = host_root / MODULES
    is_loaded = (modules / "ib_uverbs").is_dir() or (host_root / VERBS).is_dir()
    if adapters and (modules / "ib_core").is_dir() and not is_loaded:
        said = f"ib_uverbs is not loaded: no program can open {adapters[0].name} or any other RDMA device"
        seen.fault("NicDriverMissing", "host", said)


def _openable(host_root: Path) -> set[str]:
    """Give the RDMA devices that have a verbs device, of which a program opens the node below ``/dev``."""
    folder = host_root / VERBS
    if not folder.is_dir():
        return set()
    return {text(device / "ibdev") for device in folder.iterdir()} - {""}


def _is_elsewhere(host_root: Path, one: Idle, driver: str) -> bool:
    """Whether it is somebody's: given to another driver on purpose, or its device moved to where a pod is."""
    return one.driver not in {"", driver} or (one.driver == driver and are_of_one_namespace(host_root))


def _say_elsewhere(seen: Report, idle: list[Idle]) -> None:
    if idle:
        shown = _shown([one.address for one in idle])
        seen.blind(f"held by a driver, and no RDMA device of theirs is seen from here: {shown}")


def _shown(addresses: list[str]) -> str:
    return ", ".join(addresses[:4]) + (f" and {len(addresses) - 4} more" if len(addresses) > 4 else "")
