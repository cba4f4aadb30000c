"""Reads what a child printed. A child may lie, so this is strict: what does not fit is no answer at all."""

from __future__ import annotations

import msgspec

from fleetwell.health.catalogue import UnknownFaultError, fault
from fleetwell.health.evidence import evidence
from fleetwell.health.vocabulary import BootId, Component, FaultName, Observation, Recovery, Snapshot, Verdict

MAX_OBSERVATIONS = 4096
"""More than every GPU and every link of the largest machine can have."""


class NonsenseError(ValueError):
    """A child's output is not a report; nothing of it was taken."""


class _Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: str
    component: str
    evidence: str
    verdict: Verdict | None = None
    recovery: Recovery | None = None


class GpuSeen(msgspec.Struct, frozen=True):
    """A GPU that a probe saw; ``uuid`` is empty where only the bus was asked."""

    uuid: str
    pci: str
    serial: str = ""
    name: str = ""


class NicSeen(msgspec.Struct, frozen=True):
    """A network device that a probe saw."""

    name: str
    pci: str = ""
    driver: str = ""


class InventorySeen(msgspec.Struct, frozen=True):
    """Hardware that a probe saw."""

    gpus: tuple[GpuSeen, ...] = ()
    nics: tuple[NicSeen, ...] = ()


class ChildReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One look by one probe, as a child prints it."""

    probe: str
    observations: tuple[_Seen, ...] = ()
    covered: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    inventory: InventorySeen = InventorySeen()
    absent: str = ""
    """Why what the probe asks is not on this machine at all; empty where it is."""

    def snapshot(self, *, at: float, boot_id: BootId) -> Snapshot:
        """Put it into triage's form; verdict and recovery are the catalogue's where the child gave none.

        :raises NonsenseError: it names a fault that the catalogue does not have.
        """
        return Snapshot(
            probe=self.probe,
            at=at,
            boot_id=boot_id,
            observations=tuple(self._observation(seen, at) for seen in self.observations),
            covered=tuple(Component(name) for name in self.covered),
            blind=tuple(evidence(text) for text in self.blind),
        )

    def _observation(self, seen: _Seen, at: float) -> Observation:
        try:
            kind = fault(seen.fault)
        except UnknownFaultError as error:
            raise NonsenseError(str(error)) from error
        return Observation(
            probe=self.probe,
            fault=FaultName(seen.fault),
            component=Component(seen.component),
            verdict=seen.verdict or kind.verdict,
            recovery=seen.recovery or kind.recovery,
            at=at,
            evidence=evidence(seen.evidence),
        )


_DECODER = msgspec.json.Decoder(ChildReport)


def read(output: bytes, probes: tuple[str, ...]) -> tuple[ChildReport, ...]:
    """Read the reports that a child owes, one a line and one for each probe.

    :raises NonsenseError: it is something else.
    """
    try:
        reports = tuple(_DECODER.decode(line) for line in output.splitlines() if line.strip())
    except msgspec.DecodeError as error:
        shown = evidence(output[:80].decode(errors="replace"), 80)
        raise NonsenseError(f"not a report: {error} ({shown!r})") from error
    if tuple(report.probe for report in reports) != probes:
        raise NonsenseError(f"reports of {[report.probe for report in reports]} where {list(probes)} were owed")
    if sum(len(report.observations) for report in reports) > MAX_OBSERVATIONS:
        raise NonsenseError(f"more than {MAX_OBSERVATIONS} observations")
    return reports


class ProofRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One check of a proof."""

    check: str
    verdict: Verdict
    detail: str = ""


class _Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    probe: str
    results: tuple[ProofRow, ...]


def read_proof(output: bytes) -> tuple[ProofRow, ...]:
    """Read what :mod:`fleetwell.probes.proof` printed.

    :raises NonsenseError: it is something else, or no check was made.
    """
    try:
        proof = msgspec.json.decode(output, type=_Proof)
    except msgspec.DecodeError as error:
        raise NonsenseError(f"not a proof: {error}") from error
    if not proof.results:
        raise NonsenseError("a proof without a check")
    return tuple(msgspec.structs.replace(row, detail=evidence(row.detail)) for row in proof.results[:128])
