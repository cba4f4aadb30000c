"""Finds the adapter that is there and up, and slower than it should be.

Everything looks healthy then, and each collective goes on at a fraction of its bandwidth. Compared are equal adapters
of one machine, what the same adapter had here before, what both ends of its PCIe link can have, and the rate that the
operator or the instance type names. A whole group that is equally slow was built so.
"""

from __future__ import annotations

from fleetwell.probes import nic_sets
from fleetwell.probes.nic_memory import NicMemory
from fleetwell.probes.nic_sets import Rails
from fleetwell.probes.nic_tree import INFINIBAND, Adapter, Port
from fleetwell.probes.pcie_link import PcieLink
from fleetwell.probes.report import Report

FAULT = "NicDegraded"
TOLERANCE = 0.98
"""Part of a speed that counts as the whole: drivers round."""
UNKNOWN = Rails()
SDR = 2.5
"""Gb/s of a lane of InfiniBand's first generation."""


def judge(seen: Report, adapters: list[Adapter], memory: NicMemory, must_gbps: float, rails: Rails = UNKNOWN) -> None:
    """Compare.

    :param must_gbps: rate that each port of a rail must have; 0 where nothing says it.
    :param rails: how many there are, as far as that is known.
    """
    bound = {adapter.name for adapter in nic_sets.bound_by_rate(adapters, must_gbps, rails)}
    for kind in nic_sets.kinds(adapters):
        _rates(seen, kind, memory, must_gbps if kind[0].name in bound else 0.0, rails)
        _buses(seen, kind, memory, rails)


def _rates(seen: Report, kind: list[Adapter], memory: NicMemory, must_gbps: float, rails: Rails) -> None:
    layers: dict[str, list[tuple[Adapter, Port]]] = {}
    for adapter in kind:
        for port in adapter.ports:
            if (port.is_up or adapter.is_efa) and port.gbps:
                layers.setdefault(port.link_layer, []).append((adapter, port))
    for ports in layers.values():
        fastest, slowest = max(p.gbps for _, p in ports), min(p.gbps for _, p in ports)
        widest, narrowest = max(p.lanes for _, p in ports), min(p.lanes for _, p in ports)
        alike = len(ports) > 1 and fastest == slowest and widest == narrowest
        beside = fastest
        must = must_gbps
        if rails.are_all(len({a.name for a, p in ports if p.gbps >= max(fastest, must) * TOLERANCE})):
            beside, widest, must = 0.0, 0, 0.0  # Equal boards beyond those are on another network.
        for adapter, port in ports:
            best = memory.best(adapter.key(port))
            if alike:  # All of them changed: that is the network they are connected to, and no adapter.
                best.gbps, best.lanes = port.gbps, port.lanes
            else:
                best.gbps, best.lanes = max(best.gbps, port.gbps), max(best.lanes, port.lanes)
            said = _slower(port, beside, widest, best.gbps, best.lanes, must)
            if not said and len(ports) == 1:
                said = _never_right(port)
            if said:
                where = "" if len(adapter.ports) == 1 else f" on port {port.number}"
                lanes = f" ({port.lanes} lanes)" if port.lanes else ""
                seen.fault(FAULT, f"nic/{adapter.name}", f"up at {port.gbps:g} Gb/s{lanes}{where}; {said}")


def _never_right(port: Port) -> str:
    """Say what no InfiniBand link of a sound adapter shows, whatever it is connected to.

    A cable has two lanes or four, so one is what is left of them; and a link that stayed at the first generation's
    speed, at which each begins, did not train. Several equal ones that are so were built so.
    """
    if port.link_layer != INFINIBAND or not port.lanes:
        return ""
    if port.lanes == 1:
        return "no InfiniBand cable has one lane: the others were lost"
    if port.gbps / port.lanes <= SDR:
        return "the link stayed at the speed of the first generation, at which each begins"
    return ""


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


def _buses(seen: Report, kind: list[Adapter], memory: NicMemory, rails: Rails) -> None:
    linked = [adapter for adapter in kind if adapter.link.lanes and adapter.link.speed]
    if not linked:
        return
    fastest = max(linked, key=lambda adapter: adapter.link.gbps)
    as_fast = sum(adapter.link.gbps == fastest.link.gbps for adapter in linked)
    alike = len(linked) > 1 and as_fast == len(linked)
    # Where one link has more than its slot, or a slot more than any that is built, a hypervisor made the slots up.
    real_slots = all(adapter.link.fits_its_slot for adapter in linked)
    for adapter in linked:
        link = adapter.link if real_slots else adapter.link.without_slot()
        best = memory.best(f"{adapter.pci}/pcie")
        best.pcie_gbps = link.gbps if alike else max(best.pcie_gbps, link.gbps)
        rate = max((port.gbps for port in adapter.ports), default=0.0)
        beside = None if rails.are_all(as_fast) else fastest.link
        said = _narrower(link, beside, best.pcie_gbps, rate, alone=len(linked) == 1)
        if said:
            seen.fault(FAULT, f"nic/{adapter.name}", f"PCIe link of {adapter.pci} at {link}; {said}")


def _narrower(link: PcieLink, beside: PcieLink | None, had: float, rate: float, *, alone: bool) -> str:
    """Say what shows that a link should be better.

    A lower speed or width than the device's own best is none by itself: the slot may have no more. It is when the slot
    has it too, or this one had it before, or an equal device has it and nothing says that the slot has no more.
    """
    has_slot = link.slot_lanes and link.slot_speed and link.can_lanes and link.can_speed
    if has_slot:
        lanes, speed = min(link.can_lanes, link.slot_lanes), min(link.can_speed, link.slot_speed)
        if link.lanes < lanes or link.speed < speed:
            return f"both it and its slot can have {speed:g} GT/s x{lanes}"
    elif beside is not None and link.gbps < beside.gbps * TOLERANCE:
        return f"an equal adapter beside it has {beside}"
    if link.gbps < had * TOLERANCE:
        return f"it carried {had:.0f} Gb/s on this machine before and carries {link.gbps:.0f} now"
    if alone and link.lanes < link.can_lanes and not link.slot_lanes and link.gbps < rate:
        return f"it can have x{link.can_lanes}, and its port brings {rate:g} Gb/s where this carries {link.gbps:.0f}"
    return ""
