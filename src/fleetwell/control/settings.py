"""What an operator can set, and the times that tests step."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass

from fleetwell.kube.resource import Raw, Resource

NAMESPACE = "fleetwell"
MANAGER = "fleetwell-controller"
"""Field manager of our writes, and reporting component of our Events."""


def _wall() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)


@dataclass(frozen=True)
class Clock:
    """The controller's own time: ``now`` for what is written down, ``monotonic`` for how long something lasts."""

    now: Callable[[], dt.datetime] = _wall
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Times in seconds."""

    namespace: str = NAMESPACE
    """Where the leader's Lease and the agents' Leases are."""
    agent_stale_after: float = 180.0
    """An agent whose Lease has not changed for so long, by our own clock, is silent; it renews once a minute."""
    workers: int = 64
    """Effects that run at once, each on another node."""
    writers: int = 32
    """Incident writes in flight at once."""
    minor_write_interval: float = 30.0
    """How often an Incident is rewritten when only counters and times of holds have moved."""
    longest_wait: float = 60.0
    """Every open episode is looked at again after this, whatever was or was not observed."""
    effect_timeout: float = 120.0
    """An effect that takes longer is stopped and tried again: a hanging request must not hold a node's worker."""
    chores_interval: float = 30.0
    """How often DaemonSets, old incidents, and what agents are told to expect are looked at."""
    keep_ended: float = 8 * 86400.0
    """How long ended Incidents are kept."""
    drain_poll: float = 2.0
    """Pause between two looks at the pods of a node that drains, and between the two that must find it empty."""
    template_kinds: tuple[TemplateKind, ...] = ()
    """Kinds that the ``template`` provider may create."""


@dataclass(frozen=True)
class TemplateKind:
    """A kind on the allow-list of the ``template`` provider."""

    group: str
    version: str
    kind: str
    plural: str

    @classmethod
    def parse(cls, text: str) -> TemplateKind:
        """Read ``GROUP/VERSION/KIND`` or ``GROUP/VERSION/KIND=PLURAL``.

        :raises ValueError: the text has another form.
        """
        head, _, plural = text.partition("=")
        parts = head.split("/")
        if len(parts) != 3 or not all(parts):
            msg = f"{text!r} is no kind: write GROUP/VERSION/KIND, or GROUP/VERSION/KIND=PLURAL for an odd plural"
            raise ValueError(msg)
        return cls(parts[0], parts[1], parts[2], plural or f"{parts[2].lower()}s")

    def resource(self, *, namespaced: bool) -> Resource[Raw]:
        """Give the resource for the client."""
        return Resource(self.group, self.version, self.plural, self.kind, namespaced, dict, status=True)

    @property
    def api_version(self) -> str:
        """``group/version``."""
        return f"{self.group}/{self.version}"
