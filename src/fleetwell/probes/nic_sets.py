"""Which adapters belong together, and which of them a count or a rate speaks of.

A machine has rails for its GPUs, and beside them adapters for storage, management or a front-end network. Of those
none stands for a rail that is missing, down or slow, and none is at fault for being another kind.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import NamedTuple

from fleetwell.probes.nic_tree import Adapter

RAILS = 4
"""From so many equal ones on, the few that differ are out of line."""
MOST = 0.75
"""The part of a set that makes it one: eight rails of which two are missing are still a set of eight."""
_FEW = 6
"""Kinds of which every sum is tried."""


class Rails(NamedTuple):
    """How many rails a machine has, as far as that is known."""

    said: int | None = None
    """How many there must be, where somebody said so."""
    gpus: int | None = None
    """How many GPUs there are to be: rails come in so many, or a multiple."""

    def are_all(self, number: int) -> bool:
        """Say whether so many are a whole set: equal boards beyond them are for something else."""
        return self.fit_the_gpus(number) if self.said is None else number >= self.said

    def fit_the_gpus(self, number: int) -> bool:
        """Say whether so many are one for each GPU, or several."""
        if self.gpus is None or self.gpus < RAILS:
            return False  # Of one or two, nearly every number would be a set.
        return number >= self.gpus and number % self.gpus == 0


def kinds(adapters: list[Adapter]) -> list[list[Adapter]]:
    """Put equal adapters together.

    Cards with several functions are told from those with one: they are the ones for storage, on a network of their own,
    beside rails of the same chip. Bonded to one another they have a single device, and the driver names it so.
    """
    cards = Counter(adapter.card for adapter in adapters)
    groups: dict[tuple[str, bool, bool, bool], list[Adapter]] = {}
    for adapter in adapters:
        key = (adapter.model, cards[adapter.card] > 1, "bond" in adapter.name, adapter.is_infiniband)
        groups.setdefault(key, []).append(adapter)
    return list(groups.values())


def on_the_network_meant(adapters: list[Adapter]) -> list[Adapter]:
    """Leave out Ethernet where there is InfiniBand: then that is what the rails are."""
    return [adapter for adapter in adapters if adapter.is_infiniband] or adapters


def meant(adapters: list[Adapter], rails: Rails) -> tuple[list[Adapter], int]:
    """Tell which adapters a person means who says how many there must be, and how many of those are missing."""
    count = rails.said
    if count is None or not adapters:
        return adapters, count or 0
    pool = on_the_network_meant(adapters)
    if len(pool) < count:
        return pool, count - len(pool)
    sets = kinds(pool)
    enough = [kind for kind in sets if len(kind) >= count]
    if enough:
        return max(enough, key=lambda kind: max(_rate(adapter) for adapter in kind)), 0
    # So many rails as GPUs, or several for each: who says such a number did not count the cards for storage.
    whole = _whole_sets(sets, count, by_cards=not rails.fit_the_gpus(count))
    if whole is not None:
        return whole, 0
    largest = max(sets, key=len)
    if len(largest) >= MOST * count:
        return largest, count - len(largest)
    return pool, 0


def bound_by_rate(adapters: list[Adapter], gbps: float, rails: Rails) -> list[Adapter]:
    """Tell which adapters must have a rate that a person or the instance type names.

    Where nobody said how many: the kinds of which one reaches it, or else the largest kind.
    """
    if not gbps or not adapters:
        return []
    if rails.said is not None:
        return meant(adapters, rails)[0]
    sets = kinds(on_the_network_meant(adapters))
    reaching = [kind for kind in sets if any(_rate(adapter) >= gbps for adapter in kind)]
    return [adapter for kind in reaching or [max(sets, key=len)] for adapter in kind]


def _whole_sets(sets: list[list[Adapter]], count: int, *, by_cards: bool) -> list[Adapter] | None:
    """Give whole kinds that are so many adapters together, or so many cards."""
    for number in range(2, min(len(sets), _FEW) + 1):
        for some in combinations(sets[:_FEW], number):
            together = [adapter for kind in some for adapter in kind]
            if count == len(together) or (by_cards and count == len({adapter.card for adapter in together})):
                return together
    return None


def _rate(adapter: Adapter) -> float:
    return max((port.gbps for port in adapter.ports if port.is_up or adapter.is_efa), default=0.0)
