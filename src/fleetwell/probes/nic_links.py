"""Finds the adapter that is there and up, and slower than it should be.

Everything looks healthy then, and each collective goes on at a fraction of its bandwidth. Compared are equal adapters
of one machine, what the same adapter had here before, what both ends of its PCIe link can have, and the rate that the
operator or the instance type names. A whole group that is equally slow was built so.
"""

from __future__ import annotations

from fleetwell.probes.nic_memory import NicMemory
from fleetwell.probes.nic_tree import Adapter, PcieLink, Port
from fleetwell.probes.report import Report

FAULT = "NicDegraded"
TOLERANCE = 0.98
"""Part of a speed that counts as the whole: drivers round."""


def judge(seen: Report, adapters: list[Adapter], memory: NicMemory, must_gbps: float) -> None:
    """Compare.

    :param must_gbps: rate that each port must have; 0 where nothing says it.
    """
    real = [adapter for adapter in adapters if not adapter.is_virtual_function]
    cards = [adapter.card for adapter in real]
    models: dict[tuple[str, bool], list[Adapter]] = {}
    for adapter in real:
        # Cards with two ports are the ones for storage, on a network of its own, beside rails of the same chip.
        models.setdefault((adapter.model, cards.count(adapter.card) > 1), []).append(adapter)
    for group in models.values():
        _rates(seen, group, memory, must_gbps)
        _buses(seen, group, memory)


def _rates(seen: Report, group: list[Adapter], memory: NicMemory, must_gbps: float) -> None:
    layers: dict[str, list[tuple[Adapter, Port]]] = {}
    for adapter in group:
        for port in adapter.ports:
            if (port.is_up or adapter.is_efa) and port.gbps:
                layers.setdefault(port.link_layer, []).append((adapter, port))
    for ports in layers.values():
        fastest, slowest = max(p.gbps for _, p in ports), min(p.gbps for _, p in ports)
        widest, narrowest = max(p.lanes for _, p in ports), min(p.lanes for _, p in ports)
        alike = len(ports) > 1 and fastest == slowest and widest == narrowest
        for adapter, port in ports:
            best = memory.best(adapter.key(port))
            if alike:  # All of them changed: that is the network they are connected to, and no adapter.
                best.gbps, best.lanes = port.gbps, port.lanes
            else:
                best.gbps, best.lanes = max(best.gbps, port.gbps), max(best.lanes, port.lanes)
            said = _slower(port, fastest, widest, best.gbps, best.lanes, must_gbps)
            if said:
                where = "" if len(adapter.ports) == 1 else f" on port {port.number}"
                lanes = f" ({port.lanes} lanes)" if port.lanes else ""
                seen.fault(FAULT, f"nic/{adapter.name}", f"up at {port.gbps:g} Gb/s{lanes}{where}; {said}")


def _slower(port: Port, fastest: float, widest: int, had: float, had_lanes: int, must: float) -> str:
    if port.gbps < must * TOLERANCE:
        return f"it must have {must:g} Gb/s"
    if port.gbps < fastest * TOLERANCE:
        return f"an equal adapter beside it has {fastest:g} Gb/s"
    if port.gbps < had * TOLERANCE:
        return f"it had {had:g} Gb/s on this machine before"
    # The same rate on fewer lanes is another kind of cable, and no fault.
    if 0 < port.lanes < max(widest, had_lanes) and port.gbps < max(fastest, had) * TOLERANCE:
        return f"others have {max(widest, had_lanes)} lanes"
    return ""


def _buses(seen: Report, group: list[Adapter], memory: NicMemory) -> None:
    linked = [adapter for adapter in group if adapter.link.lanes and adapter.link.speed]
    if not linked:
        return
    fastest = max(linked, key=lambda adapter: adapter.link.gbps)
    alike = len(linked) > 1 and all(adapter.link.gbps == fastest.link.gbps for adapter in linked)
    for adapter in linked:
        link, best = adapter.link, memory.best(f"{adapter.pci}/pcie")
        best.pcie_gbps = link.gbps if alike else max(best.pcie_gbps, link.gbps)
        rate = max((port.gbps for port in adapter.ports), default=0.0)
        said = _narrower(link, fastest.link, best.pcie_gbps, rate, alone=len(linked) == 1)
        if said:
            seen.fault(FAULT, f"nic/{adapter.name}", f"PCIe link of {adapter.pci} at {link}; {said}")


def _narrower(link: PcieLink, beside: PcieLink, had: float, rate: float, *, alone: bool) -> str:
    """Say what shows that a link should be better.

    A lower speed or width than the device's own best is none by itself: the slot may have no more. It is when the slot
    has it too, or an equal device has it, or this one had it before.
    """
    if link.slot_lanes and link.slot_speed and link.can_lanes and link.can_speed:
        lanes, speed = min(link.can_lanes, link.slot_lanes), min(link.can_speed, link.slot_speed)
        if link.lanes < lanes or link.speed < speed:
            return f"both it and its slot can have {speed:g} GT/s x{lanes}"
    if link.gbps < beside.gbps * TOLERANCE:
        return f"an equal adapter beside it has {beside}"
    if link.gbps < had * TOLERANCE:
        return f"it carried {had:.0f} Gb/s on this machine before and carries {link.gbps:.0f} now"
    if alone and link.lanes < link.can_lanes and not link.slot_lanes and link.gbps < rate:
        return f"it can have x{link.can_lanes}, and its port brings {rate:g} Gb/s where this carries {link.gbps:.0f}"
    return ""
