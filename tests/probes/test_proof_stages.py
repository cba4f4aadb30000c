"""The proof as a whole, with workers that lie, hang and crash."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetwell.health.vocabulary import Verdict
from fleetwell.probes import launch, proof_rows
from fleetwell.probes.proof_rows import Gpu, Measured, Row, Told
from fleetwell.probes.proof_stages import Asked, Device, Proof
from fleetwell.probes.protocol import ProofRow, read_proof
from probes.proof_devices import H100

OWED = ("memory", "compute", "clocks", "host link")
Worker = Callable[[Mapping[str, Any]], tuple[list[Told], str]]
"""Settings → what it prints, and code that it runs after that."""


def well(on: str, *checks: str) -> list[Told]:
    return [Row(check, on, "OK", "fine") for check in checks]


def healthy(given: Mapping[str, Any]) -> tuple[list[Told], str]:
    devices = [f"gpu/{gpu['uuid']}" for gpu in given["devices"]]
    match given["stage"]:
        case "driver":
            return [*well("host", "driver"), *(Gpu(f"GPU-{number}", H100) for number in range(4))], ""
        case "device":
            digest = Measured("product bfloat16 inputs 1", devices[0], H100, digest="d")
            return [*well(devices[0], *OWED), digest], ""
        case "links":
            return well("host", "peer links"), ""
        case _:
            return [Measured("collective", devices[given["rank"]], H100, rate=480)], ""


def device(number: int, told: list[Told], code: str = "") -> Worker:
    def worker(given: Mapping[str, Any]) -> tuple[list[Told], str]:
        if given["stage"] == "device" and given["devices"][0]["uuid"] == f"GPU-{number}":
            return told, code
        return healthy(given)

    return worker


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, list[ProofRow]]]:
    def run(worker: Worker, *, level: str = "medium", deadline: float = 600) -> dict[str, list[ProofRow]]:
        def module(name: str, settings: Mapping[str, Any]) -> list[str]:
            assert name == "proof_worker"
            told, code = worker({"devices": [], "rank": 0, **settings})
            said = "".join(proof_rows.line(one) for one in told)
            return [sys.executable, "-S", "-c", f"import os, sys, time\nprint({said!r}, end='', flush=True)\n{code}"]

        monkeypatch.setattr(launch, "module", module)
        asked = Asked(level=level, host_root=tmp_path, expected=4, device=Device.CUDA, deadline=deadline)
        found: dict[str, list[ProofRow]] = {}
        for row in read_proof(proof_rows.encode(Proof(asked).run()).encode()):
            found.setdefault(row.check, []).append(row)
        return found

    return run


Prove = Callable[..., dict[str, list[ProofRow]]]


def verdicts(found: dict[str, list[ProofRow]]) -> dict[str, set[str]]:
    return {check: {row.verdict.value for row in rows} for check, rows in found.items()}


def test_a_node_that_is_well_passes_every_check(prove: Prove) -> None:
    found = prove(healthy)
    assert verdicts(found) == {
        check: {"OK"} for check in ("driver", *OWED, "agreement", "peer links", "collective", "dcgm")
    }
    assert found["memory"][0].detail == "4 devices: fine"
    assert found["dcgm"][0].detail.startswith("blind: no dcgmi")


def test_a_machine_that_shows_no_gpu_has_proved_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing says how many there must be: a new node whose driver is not there yet gets no work."""
    monkeypatch.delenv("FLEETWELL_NVML_STATE", raising=False)
    rows = read_proof(proof_rows.encode(Proof(Asked(level="quick", host_root=tmp_path)).run()).encode())
    assert {row.check: row.verdict for row in rows} == {"driver": Verdict.OK, "compute": Verdict.UNKNOWN}


def test_a_worker_that_hangs_leaves_its_own_partial_results_and_the_others(prove: Prove) -> None:
    began = time.monotonic()
    found = prove(device(2, well("gpu/GPU-2", "memory"), "time.sleep(60)"), deadline=4)
    assert time.monotonic() - began < 10
    bad = [row for rows in found.values() for row in rows if row.verdict == "UNKNOWN"]
    assert any(row.detail.startswith("ProofUnfinished on gpu/GPU-2: ") and "no answer" in row.detail for row in bad)
    assert found["memory"][0].detail == "4 devices: fine"


def test_a_worker_that_crashes_is_no_pass_and_says_how(prove: Prove) -> None:
    found = prove(device(0, [], "os.abort()"))
    (row,) = found["device"]
    assert row.verdict == "UNKNOWN"
    assert "gpu/GPU-0" in row.detail
    assert "SIGABRT" in row.detail


def test_a_worker_that_ends_well_and_says_nothing_is_no_pass(prove: Prove) -> None:
    found = prove(device(1, []))
    for check in OWED:
        assert "ProofUnfinished on gpu/GPU-1: it gave no result" in {row.detail for row in found[check]}


def test_a_worker_that_prints_nonsense_is_no_pass(prove: Prove) -> None:
    found = prove(device(1, [], "print('all good')"))
    assert "which is no result" in found["device"][0].detail


def test_a_wrong_result_names_its_gpu_and_the_links_are_tested_without_it(prove: Prove) -> None:
    seen: list[Mapping[str, Any]] = []

    def worker(given: Mapping[str, Any]) -> tuple[list[Told], str]:
        seen.append(given)
        return device(3, [Row("memory", "gpu/GPU-3", "BAD", "byte offset 0x8")])(given)

    found = prove(worker)
    assert found["memory"][0].detail == "GpuProofFailed on gpu/GPU-3: byte offset 0x8"
    assert verdicts(found)["peer links"] == {"OK"}
    (links,) = (given for given in seen if given["stage"] == "links")
    assert [gpu["uuid"] for gpu in links["devices"]] == ["GPU-0", "GPU-1", "GPU-2"]


def test_a_gpu_that_is_in_use_holds_the_release(prove: Prove) -> None:
    found = prove(device(0, [Row("device", "gpu/GPU-0", "UNKNOWN", "in use by pid 7: not disturbed")]))
    assert found["device"][0].detail == "ProofUnfinished on gpu/GPU-0: in use by pid 7: not disturbed"
    assert verdicts(found)["memory"] == {"OK"}


def test_a_device_that_computes_other_bits_is_named_by_the_others(prove: Prove) -> None:
    odd = [*well("gpu/GPU-1", *OWED), Measured("product bfloat16 inputs 1", "gpu/GPU-1", H100, digest="x")]
    found = prove(device(1, odd), level="long")
    assert found["agreement"][0].detail.startswith("GpuProofFailed on gpu/GPU-1: ")


def test_a_collective_in_which_a_rank_is_lost_is_no_pass(prove: Prove) -> None:
    def worker(given: Mapping[str, Any]) -> tuple[list[Told], str]:
        lost = given["stage"] == "collective" and given["rank"] == 2
        return ([], "os.abort()") if lost else healthy(given)

    (row,) = prove(worker)["collective"]
    assert row.verdict == "UNKNOWN"
    assert "gpu/GPU-2" in row.detail


def test_a_driver_that_does_not_answer_is_no_pass(prove: Prove) -> None:
    found = prove(lambda _: ([], "time.sleep(60)"), deadline=1.5)
    assert verdicts(found) == {"driver": {"UNKNOWN"}, "compute": {"UNKNOWN"}}


def test_a_driver_that_shows_no_gpu_where_gpus_are_proven_is_no_pass(prove: Prove) -> None:
    found = prove(lambda _: (well("host", "driver"), ""))
    assert verdicts(found)["compute"] == {"UNKNOWN"}


def test_a_missing_gpu_fails_and_the_others_are_still_tested(prove: Prove) -> None:
    def worker(given: Mapping[str, Any]) -> tuple[list[Told], str]:
        if given["stage"] != "driver":
            return healthy(given)
        missing = Row("driver", "gpu/GPU-3", "BAD", "3 of 4", fault="GpuMissing")
        return [missing, *(Gpu(f"GPU-{number}", H100) for number in range(3))], ""

    found = prove(worker)
    assert found["driver"][0].detail == "GpuMissing on gpu/GPU-3: 3 of 4"
    assert found["memory"][0].detail == "3 devices: fine"


def test_of_more_rows_than_fit_the_worst_are_kept() -> None:
    many = [Row("memory", f"gpu/{number}", "UNKNOWN", "?") for number in range(200)]
    rows = read_proof(proof_rows.encode([*many, Row("memory", "gpu/x", "BAD", "!")]).encode())
    assert rows[0].verdict == "BAD"
    assert len(rows) <= 128


def test_what_a_worker_prints_is_read_back_as_it_was() -> None:
    told: list[Told] = [
        Row("memory", "gpu/x", "BAD", "!", fault="GpuLost"),
        Measured("TFLOP/s", "gpu/x", H100, rate=1.5),
        Gpu("GPU-1", H100),
    ]
    assert proof_rows.read("".join(map(proof_rows.line, told)).encode()) == (told, "")
    assert msgspec.json.decode(proof_rows.line(told[2]))["type"] == "gpu"
