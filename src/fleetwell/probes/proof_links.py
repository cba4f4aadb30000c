"""Bandwidth: host to device, device to device, and a collective over all of them, each against a floor and for bits."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping

from fleetwell.probes.proof_device import CannotTellError, Device, Links
from fleetwell.probes.proof_rows import Row
from fleetwell.probes.proof_thresholds import Level, Model
from fleetwell.probes.proof_time import Time

HOST_LINK = "host link"
PEER_LINKS = "peer links"
COLLECTIVE = "collective"
WRONG = "wrong elements"
"""What a rank calls the number of elements of the sum that were wrong on its device."""


def host_link(device: Device, level: Level, model: Model) -> Row:
    """Time copies to the device and back; the best of several counts, since the host may be busy otherwise."""
    size = level.copy_mib << 20
    there = back = 0.0
    for _ in range(level.copies):
        to, fro, same = device.host_copy(size)
        if not same:
            return Row(HOST_LINK, device.component, "BAD", f"{level.copy_mib} MiB came back changed from the device")
        there, back = max(there, gbps(size, to)), max(back, gbps(size, fro))
    said = f"{there:.3g} GB/s to the device and {back:.3g} GB/s from it"
    if min(there, back) < model.host_gbps:
        return Row(HOST_LINK, device.component, "BAD", f"{said}, the floor is {model.host_gbps:.3g}")
    blind = "" if model.host_gbps else f" (no floor for {device.model!r})"
    return Row(HOST_LINK, device.component, "OK", f"{said}{blind}")


def peer_links(links: Links, level: Level, model: Model, time: Time) -> Iterator[Row]:
    """Time copies between all pairs, in both directions."""
    size = level.copy_mib << 20
    rates: dict[tuple[int, int], float] = {}
    for source in range(len(links.components)):
        for target in range(len(links.components)):
            if source == target:
                continue
            if time.over():
                raise CannotTellError(f"out of time after {len(rates)} pairs of devices")
            best = 0.0
            for _ in range(level.copies):
                took, same = links.copy(source, target, size)
                if not same:
                    said = f"{level.copy_mib} MiB arrived changed on {links.components[target]}; {_PAIR}"
                    yield Row(PEER_LINKS, links.components[source], "BAD", said)
                    break
                best = max(best, gbps(size, took))
            else:
                rates[source, target] = best
    slow = {pair: rate for pair, rate in rates.items() if rate < model.peer_gbps}
    yield from _slow(links, slow, model.peer_gbps)
    if rates and not slow:
        values = sorted(rates.values())
        floor = f"floor {model.peer_gbps:.3g}" if model.peer_gbps else f"no floor for {links.model!r}"
        said = f"{len(rates)} pairs, {values[0]:.3g} to {values[-1]:.3g} GB/s ({floor})"
        yield Row(PEER_LINKS, "host", "OK", said)


_PAIR = "which of the two it is cannot be told by one pair"


def _slow(links: Links, slow: Mapping[tuple[int, int], float], floor: float) -> Iterator[Row]:
    """Blame the device that most of the slow pairs share; a pair without such a device is told as a pair."""
    devices = len(links.components)
    if devices > 2 and len(slow) == devices * (devices - 1):
        said = f"all {len(slow)} directions are slow, at most {max(slow.values()):.3g} GB/s, the floor is {floor:.3g}"
        yield Row(PEER_LINKS, "host", "BAD", said)
        return
    left = dict(slow)
    while left:
        shares = Counter(device for pair in left for device in pair)
        (device, pairs), *others = shares.most_common()
        mine = {pair: rate for pair, rate in left.items() if device in pair}
        alone = not others or pairs > others[0][1]
        pair = min(mine, key=lambda one: mine[one])
        other = links.components[pair[0] if pair[1] == device else pair[1]]
        said = f"{len(mine)} slow directions, the slowest {mine[pair]:.3g} GB/s with {other}, the floor is {floor:.3g}"
        yield Row(PEER_LINKS, links.components[device], "BAD", said if alone else f"{said}; {_PAIR}")
        left = {pair: rate for pair, rate in left.items() if pair not in mine}


def collective(rates: Mapping[str, float], wrong: Mapping[str, int], model: Model, name: str) -> Iterator[Row]:
    """Judge an all-reduce.

    :param rates: bus bandwidth that each device saw, GB/s.
    :param wrong: devices on which elements of the sum were wrong, and how many.
    """
    for component, count in wrong.items():
        others = len(rates) - len(wrong)
        said = f"{count} elements of an all-reduce over {len(rates)} devices are wrong here"
        told = f"and right on the {others} others" if others else "and on all others: which device it is cannot be told"
        yield Row(COLLECTIVE, component, "BAD", f"{said}, {told}")
    if wrong or not rates:
        return
    rate, floor = statistics.median(rates.values()), model.collective(len(rates))
    said = f"all-reduce over {len(rates)} devices at {rate:.3g} GB/s of bus bandwidth, sums right"
    if rate < floor:
        yield Row(COLLECTIVE, "host", "BAD", f"{said}, the floor is {floor:.3g}; which device it is cannot be told")
    else:
        yield Row(COLLECTIVE, "host", "OK", said if floor else f"{said} (no floor for {len(rates)} of {name!r})")


def gbps(size: int, seconds: float) -> float:
    """Give bytes over seconds in GB/s."""
    return size / max(seconds, 1e-9) / 1e9
