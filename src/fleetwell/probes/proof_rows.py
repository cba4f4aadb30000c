"""What the parts of a proof tell: rows for people, and measurements that only mean something beside their neighbours'.

A worker prints one JSON object a line as it goes, so what it found stands even if it hangs in the next check. The proof
joins them into the one object that the agent reads (:func:`fleetwell.probes.protocol.read_proof`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

import msgspec

from fleetwell.health.catalogue import UnknownFaultError, fault
from fleetwell.probes.report import EVIDENCE_LIMIT

ORDER = ("OK", "UNKNOWN", "BAD")
"""Verdicts, the worst last."""
MAX_ROWS = 100
"""Rows of one proof; of more, the worst are kept. The agent takes at most 128."""
_FAULTS = {"BAD": "GpuProofFailed", "UNKNOWN": "ProofUnfinished"}


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="row"):
    """The result of one check on one component."""

    check: str
    component: str
    verdict: str
    said: str
    fault: str = ""
    """Name of the catalogue, where it is another than the proof's own."""

    @property
    def passed(self) -> bool:
        """Whether there is nothing to say of it but that it passed."""
        return self.verdict == "OK" and not self.fault

    @property
    def detail(self) -> str:
        """Say it; what is none too good or has a fault's name begins with ``FAULT on COMPONENT: ``."""
        fault = self.fault or _FAULTS.get(self.verdict, "")
        return (f"{fault} on {self.component}: {self.said}" if fault else self.said)[:EVIDENCE_LIMIT]


def observed(check: str, seen: Mapping[str, str]) -> Row:
    """Make a row of what another probe saw; the verdict is the catalogue's where the probe gave none.

    What is not the hardware's fault (CONFIG) is told and holds no release.
    """
    try:
        verdict = seen.get("verdict") or fault(seen["fault"]).verdict.value
    except UnknownFaultError:
        verdict = "UNKNOWN"
    component, said = seen["component"], seen["evidence"]
    if verdict in {"OK", "CONFIG"}:
        verdict, said = "OK", f"not the hardware's fault: {said}"
    return Row(check, component, verdict, said, fault=seen["fault"])


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="measured"):
    """A value of one device that is judged beside the others': a rate, or the digest of a product."""

    what: str
    """E.g. ``TFLOP/s bfloat16``, ``product float32 seed 1``."""
    component: str
    model: str
    rate: float = 0.0
    digest: str = ""


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="gpu"):
    """A GPU that the driver lists and that may be used."""

    uuid: str
    name: str


Told = Row | Measured | Gpu
Tell = Callable[[Told], None]
_DECODER = msgspec.json.Decoder(Told)


def line(told: Told) -> str:
    """Write it as a worker prints it."""
    return msgspec.json.encode(told).decode() + "\n"


def read(output: bytes) -> tuple[list[Told], str]:
    """Read what a worker printed, as far as it makes sense; give also what made no sense."""
    told: list[Told] = []
    for text in output.splitlines():
        try:
            told.append(_DECODER.decode(text))
        except msgspec.DecodeError as error:
            return told, f"it printed {text[:60]!r}, which is no result: {error}"
    return told, ""


def encode(rows: Iterable[Row]) -> str:
    """Write the proof as the agent reads it: what passed on many devices is one row, what did not is a row each."""
    passed: dict[str, list[Row]] = {}
    shown: list[Row] = []
    for row in rows:
        if row.passed:
            if row.check not in passed:
                passed[row.check] = []
                shown.append(row)
            passed[row.check].append(row)
        else:
            shown.append(row)
    shown.sort(key=lambda row: -ORDER.index(row.verdict))
    joined = [_joined(passed[row.check]) if row.passed else row for row in shown[:MAX_ROWS]]
    results = [{"check": row.check, "verdict": row.verdict, "detail": row.detail} for row in joined]
    return json.dumps({"probe": "proof", "results": results})


def _joined(rows: list[Row]) -> Row:
    said = list(dict.fromkeys(row.said for row in rows))
    devices = len({row.component for row in rows})
    text = "; ".join(said[:2]) + (f" (and {len(said) - 2} more)" if len(said) > 2 else "")
    return msgspec.structs.replace(rows[0], said=f"{devices} devices: {text}" if devices > 1 else text)
