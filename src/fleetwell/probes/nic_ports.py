"""Judges ports that are down, and ports that go down and up again and again.

A port without a cable is no fault: one counts as fallen only where it was seen up on this machine, where the operator
says how many must be up, or where nearly all of its equals are. Rules of time are gpud's: down for four minutes, so
that a switch may restart; three times down and up within twelve hours.
"""

from __future__ import annotations

from fleetwell.probes import nic_sets
from fleetwell.probes.nic_counters import CARRIER, DOWNS
from fleetwell.probes.nic_memory import NicMemory, PortMemory
from fleetwell.probes.nic_sets import MOST, RAILS, Rails
from fleetwell.probes.nic_tree import Adapter, Port
from fleetwell.probes.report import Report

DOWN_FOR = 240.0
FLAPS = 3


def judge(seen: Report, adapters: list[Adapter], memory: NicMemory, rails: Rails) -> None:
    """Look at the ports' states. EFA's are not asked: they say the same whatever is true.

    :param rails: how many adapters must be up, as far as that is known.
    """
    needed = _Needed(adapters, rails)
    for adapter in adapters:
        idle: list[Port] = []
        for port in adapter.ports:
            key = adapter.key(port)
            kept, lasting = memory.port(key), memory.best(key)
            flaps = _flaps(port, kept, memory)
            if port.is_up:
                kept.down_since, lasting.active = None, True
            elif needed.must_be_up(adapter, port, was=lasting.active):
                kept.down_since = memory.now if kept.down_since is None else kept.down_since
                _down(seen, adapter, port, memory, kept.down_since)
            else:
                idle.append(port)
            if flaps >= FLAPS:
                evidence = f"port {port.number} went down and came up {flaps} times within twelve hours"
                seen.fault("NicFlapping", f"nic/{adapter.name}", evidence)
        _say_idle(seen, adapter, idle)


def _say_idle(seen: Report, adapter: Adapter, ports: list[Port]) -> None:
    """Show in one line the ports of an adapter of which nobody knows whether they should be up: it may have a dozen."""
    if ports:
        numbers = ", ".join(port.number for port in ports)
        states = ", ".join(sorted({port.state or "?" for port in ports}))
        verb = "is" if len(ports) == 1 else "are"
        seen.blind(f"{adapter.name} port {numbers} {verb} {states}, and was never seen up here")


def settle(seen: Report, memory: NicMemory) -> None:
    """Tell the ports that were down for less than the time allowed, where nothing could be remembered.

    A look that stands alone would otherwise never tell one.
    """
    if memory.failure:
        seen.blind(memory.failure)
        for component, said in memory.waiting:
            seen.fault("NicDown", component, f"{said}; since when is not known")


def _down(seen: Report, adapter: Adapter, port: Port, memory: NicMemory, since: float) -> None:
    interface = f", {port.netdev} {port.operstate}" if port.netdev else ""
    said = f"port {port.number} is {port.state or '?'} ({port.phys_state or '?'}{interface})"
    if port.state == "INIT":
        said += "; the link is up and no subnet manager has set it up"
    component, seconds = f"nic/{adapter.name}", memory.now - since
    if seconds >= DOWN_FOR:
        seen.fault("NicDown", component, f"{said} for {seconds / 60:.0f} minutes")
    else:
        memory.waiting.append((component, said))


class _Needed:
    """Tells which ports must be up."""

    def __init__(self, adapters: list[Adapter], rails: Rails) -> None:
        self._expected = rails.said
        self._are_all = rails.are_all
        meant, _ = nic_sets.meant(adapters, rails)
        self._rails = {adapter.name for adapter in meant}
        self._up = {adapter.name for adapter in meant if any(port.is_up for port in adapter.ports)}
        self._cards_up = {adapter.card for adapter in meant if adapter.name in self._up}
        self._places: dict[tuple[str, str, str], list[Port]] = {}
        for adapter in adapters:
            for port in adapter.ports:
                self._places.setdefault(_place(adapter, port), []).append(port)

    def must_be_up(self, adapter: Adapter, port: Port, *, was: bool) -> bool:
        """Say whether a port that is down should not be.

        :param was: whether it was ever up on this machine.
        """
        if self._expected is None:
            return was or self._is_up_elsewhere(adapter, port)
        if adapter.name not in self._rails:
            return False
        enough = len(self._up) >= self._expected
        if adapter.name in self._up:  # Adapters were asked for and not ports: of these the others tell more.
            return self._is_up_elsewhere(adapter, port) or (was and not enough)
        if enough:
            return False
        if not was and adapter.card in self._cards_up and len(self._rails) > self._expected:
            return False  # The second port of a card: often without a cable.
        told = any(self._is_up_elsewhere(adapter, one) for one in adapter.ports)
        return was or not told or self._is_up_elsewhere(adapter, port)

    def _is_up_elsewhere(self, adapter: Adapter, port: Port) -> bool:
        there = self._places[_place(adapter, port)]
        # One that cannot be read does not even tell what network it is on.
        alike = [one for one in there if one.link_layer == port.link_layer or not port.state]
        up = sum(one.is_up for one in alike)
        whole = self._expected is None and self._are_all(up)  # What is beyond a whole set is for something else.
        return not whole and len(alike) >= RAILS and up >= MOST * len(alike)


def _place(adapter: Adapter, port: Port) -> tuple[str, str, str]:
    """What the same port of the other equal cards has in common with it: the second one is often without a cable."""
    _, dot, function = adapter.pci.rpartition(".")
    return adapter.model, function if dot else "", port.number


def _flaps(port: Port, kept: PortMemory, memory: NicMemory) -> int:
    """Count how often the port came back within the time that the memory reaches.

    Looks are a minute apart, so most flaps lie between two of them: the counters tell those. An interface that was
    given to a pod or came back from one was set down and up on purpose.
    """
    came_back = int(port.is_up and kept.down_since is not None)
    if port.netdev != kept.netdev:
        kept.netdev = port.netdev
        for name in (DOWNS, CARRIER):
            kept.counters.pop(name, None)
    fell = _rise(port, kept, DOWNS)
    carrier = _rise(port, kept, CARRIER) // 2  # One for the way down and one for the way up.
    kept.counters.update({name: port.counters[name] for name in (DOWNS, CARRIER) if name in port.counters})
    between = max(fell, carrier) if port.is_up else 0
    kept.flaps += [memory.now] * max(came_back, between)
    return len(kept.flaps)


def _rise(port: Port, kept: PortMemory, name: str) -> int:
    now, before = port.counters.get(name), kept.counters.get(name)
    return 0 if now is None or before is None else max(0, now - before)
