"""Judges what network adapters count, by rate, against the limits in ``data/nic_counters.toml``.

Two looks are compared. A counter that falls was begun anew with its driver; one that is absent says nothing. What
blames a remote side never condemns this machine: the one that counts is the one that waits.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from fleetwell.probes.nic_memory import NicMemory, PortMemory
from fleetwell.probes.nic_tree import Adapter
from fleetwell.probes.report import Report

SUBMITTED, COMPLETED = "submitted_cmds", "completed_cmds"
GIVEN_UP, KEEP_ALIVE = "no_completion_cmds", "keep_alive_rcvd"
ADMIN_QUEUE = frozenset({SUBMITTED, COMPLETED, GIVEN_UP, KEEP_ALIVE})
DOWNS, CARRIER = "link_downed", "carrier_changes"
ADMIN_PORT = "admin"
"""Key, beside the ports', under which a device's own counters are remembered."""


class Limit(NamedTuple):
    """How fast one counter may rise."""

    counter: str
    driver: str
    burst: float
    per_second: float
    fault: str
    says: str
    source: str
    verdict: str = ""
    recovery: str = ""


@functools.cache
def limits() -> tuple[Limit, ...]:
    """Read the table of limits."""
    text = (Path(__file__).parent / "data" / "nic_counters.toml").read_text(encoding="utf-8")
    rows: dict[str, dict[str, Any]] = tomllib.loads(text)
    return tuple(Limit(counter=counter, **row) for counter, row in rows.items())


def wanted(table: tuple[Limit, ...]) -> frozenset[str]:
    """Give the counters that a look has to read."""
    return frozenset(limit.counter for limit in table) | ADMIN_QUEUE | {DOWNS, CARRIER}


def judge(seen: Report, adapters: list[Adapter], memory: NicMemory, table: tuple[Limit, ...]) -> None:
    """Compare with the sample before, and tell what rises too fast."""
    if memory.is_due:
        said: list[list[str]] = []
        for adapter in adapters:
            said += _queue(seen, adapter, memory) if adapter.is_efa else []
            mine = [limit for limit in table if (limit.driver == "efa") is adapter.is_efa]
            for port in adapter.ports:
                kept = memory.port(adapter.key(port))
                said += _rates(adapter.name, port.counters, kept, mine, memory.gap)
        memory.said[seen.probe] = said
    present = {f"nic/{adapter.name}" for adapter in adapters}
    for fault, component, evidence, verdict, recovery in memory.said.get(seen.probe, []):
        if component in present:
            seen.fault(fault, component, evidence, verdict=verdict, recovery=recovery)


def _rates(name: str, now: dict[str, int], kept: PortMemory, mine: list[Limit], gap: float | None) -> list[list[str]]:
    said = []
    for limit in mine:
        count, before = now.get(limit.counter), kept.counters.get(limit.counter)
        if count is None:
            kept.levels.pop(limit.counter, None)
            continue
        if gap is None or before is None:
            continue
        rose = max(0, count - before)
        level = max(0.0, kept.levels.get(limit.counter, 0.0) - gap * limit.per_second) + rose
        # What runs out between two looks has had its time: a rise within it is within the limit.
        over = level - gap * limit.per_second if rose else level
        kept.levels[limit.counter] = level
        if level > 0 and over > limit.burst:
            evidence = f"{limit.counter} is at {count}, {rose} more in {gap:.0f} s ({limit.says})"
            said.append([limit.fault, f"nic/{name}", evidence, limit.verdict, limit.recovery])
    kept.counters = {**kept.counters, **now}
    return said


def _queue(seen: Report, adapter: Adapter, memory: NicMemory) -> list[list[str]]:
    """Tell an admin queue that is dead: the best sign of life that an EFA device gives.

    Its keep-alives stand still *and* commands get lost. Still keep-alives alone say nothing while nobody asks.
    """
    now = adapter.counters
    kept = memory.port(f"{adapter.pci}/{ADMIN_PORT}")
    before, kept.counters = kept.counters, dict(now)
    if memory.gap is None or not before or not now.keys() >= ADMIN_QUEUE or not before.keys() >= ADMIN_QUEUE:
        return []
    rose = {name: now[name] - before[name] for name in ADMIN_QUEUE}
    if min(rose.values()) < 0:
        kept.beats = kept.dead = False  # The driver was loaded anew.
        return []
    if rose[KEEP_ALIVE]:
        kept.beats, kept.dead = True, False
        return []
    waiting = now[SUBMITTED] - now[COMPLETED] - now[GIVEN_UP]
    waited = before[SUBMITTED] - before[COMPLETED] - before[GIVEN_UP]
    stuck = not rose[COMPLETED] and waiting > 0 and (rose[SUBMITTED] > 0 or waited > 0)
    # A queue that was given up takes no more commands, so nothing rises any more.
    kept.dead = kept.dead or rose[GIVEN_UP] > 0 or stuck
    if kept.dead:
        evidence = (
            f"no keep-alive in {memory.gap:.0f} s (at {now[KEEP_ALIVE]}); of {now[SUBMITTED]} admin commands "
            f"{now[COMPLETED]} were completed and {now[GIVEN_UP]} given up, {rose[GIVEN_UP]} of them since"
        )
        return [["EfaAdminQueueDead", f"nic/{adapter.name}", evidence, "", ""]]
    if kept.beats:
        seen.blind(f"{adapter.name}: no keep-alive in {memory.gap:.0f} s, and no command that would show more")
    return []
