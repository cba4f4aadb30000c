"""What a child may say, and what is not believed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fleetwell.probes
from fleetwell.health.catalogue import CATALOGUE
from fleetwell.health.vocabulary import BootId, Recovery, Verdict
from fleetwell.probes import protocol
from fleetwell.probes.report import EVIDENCE_LIMIT, Report


def test_a_report_comes_back_with_the_catalogues_verdict_and_recovery() -> None:
    report = Report("nvml")
    report.fault("GpuRowRemapFailed", "gpu/GPU-1", "rows\x1b[31m")
    report.fault("GpuHandleError", "gpu/GPU-2", "x" * 1000, verdict="UNKNOWN")
    report.covers("host")
    (read,) = protocol.read(report.encode().encode(), ("nvml",))
    snapshot = read.snapshot(at=1.0, boot_id=BootId("b"))
    first, second = snapshot.observations
    assert (first.verdict, first.recovery) == (Verdict.BAD, Recovery.REPLACE)
    assert "\x1b" not in first.evidence
    assert second.verdict is Verdict.UNKNOWN
    assert len(second.evidence) <= EVIDENCE_LIMIT
    assert set(snapshot.covered) == {"host", "gpu/GPU-1", "gpu/GPU-2"}


@pytest.mark.parametrize(
    "output",
    [
        b"No devices were found",
        b"{}",
        b'{"probe": "pci"}',
        b'{"probe": "nvml"}\n{"probe": "nvml"}',
        b'{"probe": "nvml", "observations": [{"fault": "GpuLost"}]}',
        b'{"probe": "nvml", "more": 1}',
        b'{"probe": "nvml", "covered": "all"}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_report_of_this_probe_is_nonsense(output: bytes) -> None:
    with pytest.raises(protocol.NonsenseError):
        protocol.read(output, ("nvml",))


def test_a_fault_that_the_catalogue_does_not_have_is_nonsense() -> None:
    report = Report("nvml")
    report.fault("GpuOnFire", "gpu/GPU-1", "smoke")
    (read,) = protocol.read(report.encode().encode(), ("nvml",))
    with pytest.raises(protocol.NonsenseError, match="GpuOnFire"):
        read.snapshot(at=1.0, boot_id=BootId("b"))


def test_every_fault_that_a_probe_can_name_is_in_the_catalogue() -> None:
    named = set()
    for path in Path(fleetwell.probes.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value[:3] in {"Gpu", "Efa", "Nvl", "Dri"}
            ):
                named.add(node.value)
    named = {name for name in named if name.isalnum()}
    assert len(named) > 15
    assert named <= set(CATALOGUE)


def test_a_proof_without_a_check_is_nonsense() -> None:
    with pytest.raises(protocol.NonsenseError):
        protocol.read_proof(b'{"probe": "proof", "results": []}')
    with pytest.raises(protocol.NonsenseError):
        protocol.read_proof(b"Killed")
