"""NodeHealth: what one node's agent knows, written by that agent alone and only when it changes."""

from __future__ import annotations

import msgspec

from fleetwell.api.fields import Time, from_epoch, wire
from fleetwell.api.policy import Expected
from fleetwell.health.vocabulary import Clears, Finding, Recovery, Source, Verdict


class _Status(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """A part of a status."""


class NodeFinding(_Status, frozen=True, kw_only=True):
    """A finding as the API shows it; times by the node's clock are evidence only."""

    fault: str
    component: str
    verdict: Verdict
    recovery: Recovery
    source: Source
    probe: str
    clears: Clears
    first_seen: Time
    last_seen: Time
    count: int = 1
    boot_id: str = ""
    evidence: tuple[str, ...] = ()
    suspected: bool = False

    @classmethod
    def of(cls, finding: Finding) -> NodeFinding:
        """Put a finding of triage into the API's form."""
        fields = {name: getattr(finding, name) for name in finding.__struct_fields__}
        fields["first_seen"] = from_epoch(finding.first_seen)
        fields["last_seen"] = from_epoch(finding.last_seen)
        return cls(**fields)

    def finding(self) -> Finding:
        """Give triage's form back, for an agent that adopts what it had published."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["first_seen"] = self.first_seen.timestamp()
        fields["last_seen"] = self.last_seen.timestamp()
        return Finding(**fields)


class Machine(_Status, frozen=True, kw_only=True):
    """The hardware under a Node object; it outlives the object."""

    provider_id: str = ""
    serial: str = ""
    """DMI product serial."""
    instance_type: str = ""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs seen."""


class Inventory(_Status, frozen=True, kw_only=True):
    """Counts of what the node has or must have; -1 where it is not known."""

    gpus: int = -1
    nics: int = -1


class ProbeStatus(_Status, frozen=True, kw_only=True):
    """How one probe fares."""

    name: str
    state: str
    """``OK``, ``BAD``, ``UNKNOWN``, ``CONFIG``, ``Blind`` or ``Paused``."""
    since: Time
    message: str = ""


class NodeHealthSpec(_Status, frozen=True, kw_only=True):
    """Spec of a NodeHealth, written by the controller."""

    operation: str = ""
    """The doorbell: name of the NodeOperation that the agent should read now."""
    expected: Expected = Expected()
    """What the node must have, as the policy that governs it says."""


class NodeHealthStatus(_Status, frozen=True, kw_only=True):
    """Status of a NodeHealth, written by the node's agent."""

    node_uid: str = ""
    boot_id: str = ""
    agent_version: str = ""
    machine: Machine = Machine()
    expected: Inventory = Inventory()
    seen: Inventory = Inventory()
    settled: bool = False
    """Every required probe has completed a look in this boot and found nothing that moves a condition."""
    verdict: Verdict = Verdict.UNKNOWN
    """The worst of the findings and probes."""
    findings: tuple[NodeFinding, ...] = ()
    probes: tuple[ProbeStatus, ...] = ()
    blind: tuple[str, ...] = ()
    summary: str = ""
    """One line for ``kubectl get``."""
