"""DCGM's diagnostic as a part of the proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetwell.probes.dcgm_reading import Asked
from fleetwell.probes.proof_diagnostic import diagnostic, judge
from fleetwell.probes.proof_rows import Row, observed
from fleetwell.probes.proof_thresholds import Diagnostic, thresholds
from probes.dcgm_outputs import diag4, result4, warning

UUID = "GPU-11111111-2222-3333-4444-555555555555"


def dcgmi(root: Path, script: str) -> None:
    program = root / "usr/bin/dcgmi"
    program.parent.mkdir(parents=True)
    listed = f'echo "| 0 | Name: NVIDIA H100 |"; echo "|   | Device UUID: {UUID} |"'
    program.write_text(f'#!/bin/sh\nif [ "$1" = discovery ]; then {listed}; exit 0; fi\n{script}\n')
    program.chmod(0o755)


def needs(**seconds: float) -> list[Diagnostic]:
    """Levels 2, 3, 4 as ``r2``, ``r3``, ``r4``, and what they need here."""
    return [Diagnostic(int(name[1:]), least, frozenset(), frozenset(), "") for name, least in seconds.items()]


def run(root: Path, choices: list[Diagnostic] | None = None, within: float = 30) -> Row:
    (row,) = diagnostic(root, choices or needs(r2=5.0), within)
    return row


def test_a_machine_without_dcgm_is_blind_there_and_held_by_nothing(tmp_path: Path) -> None:
    row = run(tmp_path)
    assert row.verdict == "OK"
    assert row.said.startswith("blind: no dcgmi")


@pytest.mark.parametrize(
    ("choices", "number", "tests"),
    [
        (needs(r2=5.0), 2, ["memory"]),
        (needs(r3=5.0, r4=31.0), 3, ["memory", "diagnostic"]),
        (needs(r3=5.0, r4=30.0), 4, ["memory", "diagnostic", "memtest"]),
    ],
)
def test_a_diagnostic_passes_at_the_highest_number_that_the_time_allows(
    tmp_path: Path, choices: list[Diagnostic], number: int, tests: list[str]
) -> None:
    output = diag4(*((test, [result4(0)]) for test in tests))
    dcgmi(tmp_path, f"""test "$*" = "diag -r {number} -j" && echo '{output}'""")
    row = run(tmp_path, choices)
    assert (row.verdict, row.said) == ("OK", f"diagnostic {number} passed on 1 GPUs")


def test_medium_runs_the_second_and_long_the_fourth_where_hours_are_left_else_the_third() -> None:
    known = thresholds()
    chosen = {name: [one.number for one in known.diagnostics_of(level)] for name, level in known.levels.items()}
    assert chosen == {"quick": [], "medium": [2], "long": [3, 4]}
    longest = known.diagnostic(4)
    assert longest is not None
    assert longest.seconds == 2.25 * 3600


def test_a_diagnostic_that_fails_names_the_gpu_by_its_uuid(tmp_path: Path) -> None:
    output = diag4(("memory", [result4(0, "Fail", warning("it failed"))]))
    dcgmi(tmp_path, f"echo '{output}'; exit 226")
    row = run(tmp_path)
    assert (row.verdict, row.component) == ("BAD", f"gpu/{UUID}")


def test_a_diagnostic_that_tested_too_little_is_no_pass() -> None:
    rows = judge(diag4(("software", [result4(0)])), Asked(code=0, level=2))
    assert {row.verdict for row in rows} == {"UNKNOWN"}


def test_a_host_engine_that_cannot_be_reached_is_no_pass(tmp_path: Path) -> None:
    dcgmi(tmp_path, 'echo "Error: unable to establish a connection to the specified host: localhost"; exit 1')
    rows = diagnostic(tmp_path, needs(r2=5.0), 30)
    assert {row.verdict for row in rows} == {"UNKNOWN"}
    assert "host engine cannot be reached" in rows[0].said


def test_a_diagnostic_that_hangs_is_ended_and_no_pass(tmp_path: Path) -> None:
    dcgmi(tmp_path, "exec sleep 60")
    (row,) = diagnostic(tmp_path, needs(r2=0.5), 1.0)
    assert row.verdict == "UNKNOWN"
    assert "no answer within its time" in row.said


def test_a_diagnostic_for_which_no_time_is_left_is_not_begun(tmp_path: Path) -> None:
    dcgmi(tmp_path, f"touch {tmp_path}/begun")
    row = run(tmp_path, within=2)
    assert row.verdict == "UNKNOWN"
    assert not (tmp_path / "begun").exists()


def test_a_complaint_about_settings_is_told_and_holds_nothing() -> None:
    row = observed("dcgm", {"fault": "DcgmSettings", "component": "host", "evidence": "persistence mode is off"})
    assert row.verdict == "OK"
    assert row.detail == "DcgmSettings on host: not the hardware's fault: persistence mode is off"


def test_what_another_probe_saw_has_the_catalogues_verdict_and_an_unknown_name_is_no_pass() -> None:
    assert observed("driver", {"fault": "GpuLost", "component": "gpu/x", "evidence": ""}).verdict == "BAD"
    assert observed("driver", {"fault": "NoSuchFault", "component": "gpu/x", "evidence": ""}).verdict == "UNKNOWN"
