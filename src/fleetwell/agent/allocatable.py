"""Compares what the Node offers with what its hardware has.

A device plugin that lost sight of a device is no fault of the device, but jobs get fewer of them, or fall back to slow
TCP without a word. A resource that the Node does not list at all says nothing: perhaps nobody installed a plugin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from fleetwell.agent.assessment import Assessment
from fleetwell.health.catalogue import fault
from fleetwell.health.vocabulary import HOST, Observation, Snapshot
from fleetwell.kube.objects import Node

PROBE = "allocatable"
FAULT = fault("AllocatableBelowHardware")
GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"
SHARED = "nvidia.com/gpu.shared"
"""The device plugin's other name for GPUs that are shared by time; the first one then stands at 0."""
EFA = "vpc.amazonaws.com/efa"
RDMA_PREFIX = "rdma/"
INTERVAL = 60.0


class Allocatable:
    """One node's offer, as a probe that needs no child: it compares two things that are known already."""

    def __init__(self, assessment: Assessment, *, wall: Callable[[], float] = time.time) -> None:
        self._assessment = assessment
        self._wall = wall
        self._offered: Mapping[str, str] = {}
        self._looked_at: float | None = None

    def node_changed(self, node: Node) -> None:
        """Take what the Node offers now."""
        self._offered = node.status.allocatable

    def look(self, now: float) -> None:
        """Compare, once a minute.

        :param now: a clock that never steps back.
        """
        if self._looked_at is not None and now - self._looked_at < INTERVAL:
            return
        has = self._assessment
        said = below(self._offered, gpus=has.found.gpus, efa=has.efa_seen, adapters=has.infiniband_seen)
        if said is None:
            return
        self._looked_at = now
        at = self._wall()
        seen = Observation(
            probe=PROBE,
            fault=FAULT.name,
            component=HOST,
            verdict=FAULT.verdict,
            recovery=FAULT.recovery,
            at=at,
            evidence="; ".join(said),
        )
        boot_id = self._assessment.boot.boot_id
        self._assessment.take(
            Snapshot(probe=PROBE, at=at, boot_id=boot_id, observations=(seen,) if said else (), covered=(HOST,))
        )


def below(offered: Mapping[str, str], *, gpus: int, efa: int | None, adapters: int | None) -> list[str] | None:
    """Say where fewer devices are offered than there are; None where nothing can be compared.

    A GPU that is cut up or shared is offered in pieces under other names, and an RDMA device is shared, under a number
    that says nothing but whether it is offered at all.
    """
    said: list[str] = []
    compared = False
    cut_up = any(name == SHARED or name.startswith(MIG_PREFIX) for name in offered)
    for name, has in ((GPU, None if gpus < 0 or cut_up else gpus), (EFA, efa)):
        count = _number(offered.get(name))
        if count is None or has is None:
            continue
        compared = True
        if count < has:
            said.append(f"the Node offers {count} of {name} and the hardware has {has}")
    for name, quantity in sorted(offered.items()):
        if name.startswith(RDMA_PREFIX) and adapters is not None:
            compared = True
            if adapters and _number(quantity) == 0:
                said.append(f"the Node offers none of {name[:64]} and the hardware has {adapters} adapters")
    return said if compared else None


def _number(quantity: str | None) -> int | None:
    return int(quantity) if quantity is not None and quantity.isascii() and quantity.isdigit() else None
