"""Keeps the GPU probes away while the GPU operator has paused its own parts.

The operator says so in labels of the Node, ``nvidia.com/gpu.deploy.<part>``. A part with ``true`` runs; one with
``paused-for-driver-upgrade`` or ``paused-for-mig-change`` stands aside so that nothing holds the driver, and we stand
aside with it. ``false`` and ``pre-installed`` are no pause: a cluster whose driver is part of the image has them for
ever, and its GPUs must be looked at.

A pause clears nothing. One that lasts too long is told, since nobody looks at the GPUs meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.sources import ChildSource
from fleetwell.health.catalogue import fault
from fleetwell.health.vocabulary import HOST, Observation, Snapshot

PROBE = "operands"
PREFIX = "nvidia.com/gpu.deploy."
RUNS_OR_NEVER_DOES = frozenset({"", "true", "false", "pre-installed"})
FAULT = fault("OperandPaused")
INTERVAL = 15.0
"""Seconds between two snapshots of this: its finding ends by them."""


class Operands:
    """The operator's parts on this node, as its Node has them.

    :param sources: what touches GPUs.
    :param deadline: seconds after which a pause is a finding.
    """

    def __init__(
        self,
        assessment: Assessment,
        sources: Sequence[ChildSource],
        deadline: float,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assessment = assessment
        self._sources = sources
        self._deadline = deadline
        self._wall = wall
        self._monotonic = monotonic
        self._known = False
        self._paused: dict[str, str] = {}
        self._why = ""
        self._began = 0.0
        self._told_at: float | None = None
        self._pauses = ExitStack()

    def node_changed(self, labels: Mapping[str, str]) -> None:
        """Take what the Node says; call it first when what an earlier agent published has been adopted."""
        said = {name.removeprefix(PREFIX): value for name, value in labels.items() if name.startswith(PREFIX)}
        self._known = self._known or bool(said)
        paused = {name: value for name, value in sorted(said.items()) if value not in RUNS_OR_NEVER_DOES}
        if bool(paused) == bool(self._paused):
            self._paused = paused or self._paused
            return
        self._paused = paused
        self._told_at = None
        if not paused:
            self._pauses.close()
            return
        name, value = next(iter(paused.items()))
        self._began = self._monotonic() - self._before()
        for source in self._sources:
            self._pauses.enter_context(source.paused(f"{PREFIX}{name} is {value[:64]}"))

    def _before(self) -> float:
        """Seconds for which an earlier agent of this boot saw the pause already."""
        since = self._assessment.paused_since(self._sources[0].name)
        return max(0.0, self._wall() - since) if since is not None else 0.0

    def look(self) -> None:
        """Tell a pause that lasts too long, and that it is over."""
        now = self._monotonic()
        if not self._known or (self._told_at is not None and now - self._told_at < INTERVAL):
            return
        self._told_at = now
        late = bool(self._paused) and now - self._began >= self._deadline
        at = self._wall()
        seen = Observation(
            probe=PROBE,
            fault=FAULT.name,
            component=HOST,
            verdict=FAULT.verdict,
            recovery=FAULT.recovery,
            at=at,
            evidence=f"paused for longer than {self._deadline:.0f} s: "
            + ", ".join(f"{name} ({value[:64]})" for name, value in list(self._paused.items())[:8]),
        )
        boot_id = self._assessment.boot.boot_id
        self._assessment.take(
            Snapshot(probe=PROBE, at=at, boot_id=boot_id, observations=(seen,) if late else (), covered=(HOST,))
        )
