"""The words of node health, shared by the probes that see, the triage that joins and the controller that acts.

One place, so that a verdict or a recovery means the same thing in a probe, in a custom resource and on a screen.
"""

from __future__ import annotations

import enum
from typing import NewType

import msgspec

FaultName = NewType("FaultName", str)
"""A kind of fault in the catalogue, CamelCase, e.g. ``GpuFallenOffBus``: stable, used as a condition's reason."""

Component = NewType("Component", str)
"""What can be bad: ``gpu/<uuid>``, ``nvlink/<gpu>/<n>``, ``nic/<name>``, ``host`` … (see the functions below)."""

BootId = NewType("BootId", str)
"""The kernel's random boot id: a new one means that the machine has really been restarted."""

HOST = Component("host")


def gpu(uuid: str) -> Component:
    """Name a whole GPU by its NVML UUID, or by ``pci-<address>`` where only the bus address is known."""
    return Component(f"gpu/{uuid}")


def nvlink(uuid: str, link: int) -> Component:
    """Name one NVLink port of a GPU."""
    return Component(f"nvlink/{uuid}/{link}")


def nvswitch(pci: str) -> Component:
    """Name an NVSwitch by its PCI address."""
    return Component(f"nvswitch/{pci}")


def nic(name: str) -> Component:
    """Name a network device by its InfiniBand device name (``rdmap79s0``, ``mlx5_0``) or interface name."""
    return Component(f"nic/{name}")


class Verdict(enum.StrEnum):
    """What a probe says. ``UNKNOWN`` is never a pass; ``CONFIG`` is a fault, but not the hardware's."""

    OK = "OK"
    CONFIG = "CONFIG"
    UNKNOWN = "UNKNOWN"
    BAD = "BAD"

    @property
    def severity(self) -> int:
        """Order of the verdicts, the worst highest: BAD > UNKNOWN > CONFIG > OK."""
        return _SEVERITIES[self.value]


_SEVERITIES = {"OK": 0, "CONFIG": 1, "UNKNOWN": 2, "BAD": 3}


class Recovery(enum.StrEnum):
    """What a fault asks for, weakest first. ``support`` asks for a person and is stronger than any rung."""

    NONE = "none"
    RESTART_WORKLOAD = "restartWorkload"
    RESET_GPU = "resetGpu"
    REBOOT = "reboot"
    REPLACE = "replace"
    SUPPORT = "support"

    @property
    def rank(self) -> int:
        """Position in the order ``none`` < ``restartWorkload`` < … < ``support``."""
        return _RANKS[self.value]


_RANKS = {recovery.value: rank for rank, recovery in enumerate(Recovery)}


def strongest(recoveries: list[Recovery]) -> Recovery:
    """Give the strongest of several recoveries; ``none`` for an empty list."""
    return max(recoveries, key=lambda recovery: recovery.rank, default=Recovery.NONE)


class Clears(enum.StrEnum):
    """How a finding ends. Nothing else ends it: an old log line that is gone clears nothing."""

    SNAPSHOT = "snapshot"
    """The probe that found it says OK again, n times."""
    BOOT = "boot"
    """A new boot id *and* a full OK snapshot of that boot."""
    REMEDY = "remedy"
    """The recovery it asks for was done (a reset, a new boot, new hardware) and the proof passed."""
    TIME = "time"
    """It ages out: faults of applications, which say nothing about the hardware."""


class ConditionType(enum.StrEnum):
    """Our node conditions, True = good; one for each thing that a person asks about."""

    GPU = "fleetwell.io/GPUHealthy"
    GPU_MEMORY = "fleetwell.io/GPUMemoryHealthy"
    INTERCONNECT = "fleetwell.io/InterconnectHealthy"
    NETWORK = "fleetwell.io/NetworkHealthy"
    THERMAL = "fleetwell.io/ThermalHealthy"
    MONITORING = "fleetwell.io/MonitoringHealthy"


class ConditionStatus(enum.StrEnum):
    """Status of a Kubernetes condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Source(enum.StrEnum):
    """How a thing was seen. An event happened once; a snapshot says how things are now. Neither clears the other."""

    EVENT = "event"
    SNAPSHOT = "snapshot"


SECONDARY = "secondary"
"""Unit of an observation whose own registers say that it is the consequence of another error."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One fault seen by one probe on one component.

    A probe that found a component well makes no Observation of it: see :class:`Snapshot`.
    """

    probe: str
    """Name of the probe, e.g. ``nvml``."""
    fault: FaultName
    component: Component
    verdict: Verdict
    recovery: Recovery
    at: float
    """When it was seen, in seconds since the epoch, by the node's clock: evidence only."""
    evidence: str
    """What was seen, one bounded and escaped line."""
    xid: int | None = None
    """Xid number where the kernel log gave one."""
    caused_by: int | None = None
    """Number of the Xid that the line itself names as its cause."""
    pid: int | None = None
    """Process that the line names: repetition only counts across different ones."""
    unit: str = ""
    """Finer place on the component, e.g. ``GPC 7, TPC 7``: repetition rules count by it."""
    times: int = 1
    """How many equal sightings this one stands for: a flood is told once, with its number."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One completed look by one probe: everything that it found not OK. What it covers and does not list is OK."""

    probe: str
    at: float
    boot_id: BootId
    observations: tuple[Observation, ...] = ()
    covered: tuple[Component, ...] = ()
    """Components that this look judged; a finding on any other component is not cleared by it."""
    blind: tuple[str, ...] = ()
    """Questions that this machine cannot answer (``rowRemap under MIG``): shown, not acted upon."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A fault on a component with its history, as kept by triage and published in NodeHealth."""

    fault: FaultName
    component: Component
    verdict: Verdict
    recovery: Recovery
    source: Source
    probe: str
    clears: Clears
    first_seen: float
    """Seconds since the epoch, the node's clock."""
    last_seen: float
    count: int
    boot_id: BootId
    evidence: tuple[str, ...] = ()
    """At most five lines: the first, and the latest ones."""
    suspected: bool = False
    """Repetition made an application-class fault a suspicion against the hardware."""
