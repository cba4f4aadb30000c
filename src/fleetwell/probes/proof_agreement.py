"""What only the neighbours can show: one device that computes something else than the others, or more slowly.

Devices of one model that compute the same product of the same inputs give the same bits. Where one differs, the
majority names it; of two that differ nobody can tell which one is wrong.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator

from fleetwell.probes.proof_rows import Measured, Row
from fleetwell.probes.proof_thresholds import CPU

CHECK = "agreement"
ENOUGH = 3
"""Devices without which there is no majority."""


def agreement(measured: Iterable[Measured], neighbour_share: float) -> Iterator[Row]:
    """Compare what the devices of a node measured, each model with itself."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in measured:
        groups.setdefault((one.model, one.what), []).append(one)
    products = 0
    found: list[Row] = []
    for (_, what), members in groups.items():
        if members[0].digest:
            products += len(members) > 1
            found += _digests(what, members)
        elif members[0].model != CPU:  # Stand-ins share one processor, and how they share it says nothing.
            found += _rates(what, members, neighbour_share)
    # One device that differs does so in many products: it is told once.
    once = {(row.component, row.verdict): row for row in reversed(found)}
    yield from reversed(once.values())
    if products and not found:
        devices = max(len(members) for members in groups.values())
        yield Row(CHECK, "host", "OK", f"{devices} devices agree bit for bit on {products} products")


def _digests(what: str, members: list[Measured]) -> Iterator[Row]:
    counts = Counter(one.digest for one in members)
    (digest, most), *others = counts.most_common()
    if not others:
        return
    if most * 2 <= len(members) or len(members) < ENOUGH:
        names = ", ".join(one.component for one in members[:3])
        said = f"{what}: {len(counts)} different results on {len(members)} devices, no majority tells which is wrong"
        yield Row(CHECK, "host", "UNKNOWN", f"{said} ({names})")
        return
    for one in members:
        if one.digest != digest:
            said = f"{what}: other bits than {most} of {len(members)} devices of the same model"
            yield Row(CHECK, one.component, "BAD", said)


def _rates(what: str, members: list[Measured], share: float) -> Iterator[Row]:
    if len(members) < ENOUGH:
        return
    median = statistics.median(one.rate for one in members)
    for one in members:
        if one.rate < median * share:
            said = f"{one.rate:.3g} {what}, the median of its {len(members)} neighbours is {median:.3g}"
            yield Row(CHECK, one.component, "BAD", f"{said}: less than {share:.0%} of it")
