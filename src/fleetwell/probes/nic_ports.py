"""Judges ports that are down, and ports that go down and up again and again.

A port without a cable is no fault: one counts as fallen only where it was seen up on this machine, where the operator
says how many must be up, or where nearly all of its equals are. Rules of time are gpud's: down for four minutes, so
that a switch may restart; three times down and up within twelve hours.
"""

from __future__ import annotations

from fleetwell.probes.nic_counters import CARRIER, DOWNS
from fleetwell.probes.nic_memory import NicMemory, PortMemory
from fleetwell.probes.nic_tree import Adapter, Port
from fleetwell.probes.report import Report

DOWN_FOR = 240.0
FLAPS = 3
RAILS = 4
"""From so many equal ports on, of which three quarters are up, one that is down is out of line."""


def judge(seen: Report, adapters: list[Adapter], memory: NicMemory, expected: int | None) -> None:
    """Look at the ports' states. EFA's are not asked: they say the same whatever is true.

    :param expected: how many adapters must be up, where somebody said so.
    """
    real = [adapter for adapter in adapters if not adapter.is_virtual_function]
    up = sum(any(port.is_up for port in adapter.ports) for adapter in real)
    for adapter in real:
        for port in adapter.ports:
            key = adapter.key(port)
            kept, lasting = memory.port(key), memory.best(key)
            flaps = _flaps(port, kept, memory)
            if port.is_up:
                kept.down_since, lasting.active = None, True
            elif _must_be_up(adapter, port, real, was=lasting.active, up=up, expected=expected):
                kept.down_since = memory.now if kept.down_since is None else kept.down_since
                _down(seen, adapter, port, memory, kept.down_since)
            else:
                seen.blind(f"{adapter.name} port {port.number} is {port.state or '?'}, and was never seen up here")
            if flaps >= FLAPS:
                evidence = f"port {port.number} went down and came up {flaps} times within twelve hours"
                seen.fault("NicFlapping", f"nic/{adapter.name}", evidence)


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


def _must_be_up(adapter: Adapter, port: Port, real: list[Adapter], *, was: bool, up: int, expected: int | None) -> bool:
    if expected is not None and up >= expected:
        return False
    if was:
        return True
    if any(one.is_up for other in real if other.card == adapter.card for one in other.ports):
        return False  # The second port of a card: often without a cable.
    if expected is not None:
        return True
    equals = [one for other in real if other.model == adapter.model for one in other.ports]
    alike = [one for one in equals if one.link_layer == port.link_layer]
    return len(alike) >= RAILS and sum(one.is_up for one in alike) >= 0.75 * len(alike)


def _flaps(port: Port, kept: PortMemory, memory: NicMemory) -> int:
    """Count how often the port came back within the time that the memory reaches.

    Looks are a minute apart, so most flaps lie between two of them: the counters tell those.
    """
    came_back = int(port.is_up and kept.down_since is not None)
    fell = _rise(port, kept, DOWNS)
    carrier = _rise(port, kept, CARRIER) // 2  # One for the way down and one for the way up.
    kept.counters.update({name: port.counters[name] for name in (DOWNS, CARRIER) if name in port.counters})
    between = max(fell, carrier) if port.is_up else 0
    kept.flaps += [memory.now] * max(came_back, between)
    return len(kept.flaps)


def _rise(port: Port, kept: PortMemory, name: str) -> int:
    now, before = port.counters.get(name), kept.counters.get(name)
    return 0 if now is None or before is None else max(0, now - before)
