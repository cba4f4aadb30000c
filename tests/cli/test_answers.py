import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleetwell.cli import cli
from fleetwell.diagnose.examination import Examination
from fleetwell.health.vocabulary import Verdict
from fleetwell.lab import machine
from fleetwell.lab.faults import inject
from fleetwell.lab.hardware import Hardware
from fleetwell.probes import launch

LOST = "[ 1843.308145] NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
SPLIT = "[ 1843.308145] NVRM: Xid (PCI:0000:05:00): 43, pid=7, name=python, Ch 00000008\n"


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, list(arguments), input=stdin)


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hardware]:
    made = Hardware.create(machine.load("p5.48xlarge"), tmp_path / "host", "seed")
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    launch.environment.cache_clear()  # A process has one environment, but these tests have many machines.
    yield made
    launch.environment.cache_clear()
    made.dispose()


def test_a_log_is_read_from_standard_input() -> None:
    result = run("diagnose", "--kernel-log", "-", "-o", "json", stdin=LOST)
    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert set(answer) == {"verdict", "recovery", "findings", "blind"}
    assert set(answer["findings"][0]) == {"fault", "component", "verdict", "recovery", "count", "evidence", "why"}


def test_the_first_line_of_the_text_says_it_all() -> None:
    result = run("diagnose", "--kernel-log", "-", stdin=LOST)
    assert result.stdout.splitlines()[0] == "BAD: GpuFallenOffBus on gpu/pci-0000:05:00, asks for reboot"


def test_strict_makes_an_applications_fault_a_one() -> None:
    assert run("diagnose", "--kernel-log", "-", stdin=SPLIT).exit_code == 0
    assert run("diagnose", "--kernel-log", "-", "--strict", stdin=SPLIT).exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("diagnose", "--kernel-log", "/there/is/none"),
        ("diagnose", "--no-such-option"),
        ("diagnose", "--expect", "gpus=many"),
        ("diagnose", "--driver", "latest"),
        ("diagnose", "--kernel-log", "-", "--dcgm", "-"),
        ("check", "--host-root", "/there/is/none"),
        ("prove", "--level", "huge"),
    ],
)
def test_a_wrong_call_is_a_three(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 3


@pytest.mark.parametrize(
    ("content", "options", "code", "verdict"),
    [
        (LOST.encode(), (), 1, "BAD"),
        (gzip.compress(LOST.encode()), (), 1, "BAD"),
        (SPLIT.encode(), (), 0, "CONFIG"),
        (SPLIT.encode(), ("--strict",), 1, "CONFIG"),
        (b"", (), 2, "UNKNOWN"),
        (bytes(range(256)) * 16, (), 2, "UNKNOWN"),
        (LOST.encode(), ("--no-such-option",), 3, ""),
    ],
)
def test_the_exit_code_of_the_process_is_the_answer(
    tmp_path: Path, content: bytes, options: tuple[str, ...], code: int, verdict: str
) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    argv = [sys.executable, "-m", "fleetwell", "diagnose", "-o", "json", "--kernel-log", str(log), *options]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    if verdict:
        answer = json.loads(done.stdout)
        assert (answer["verdict"], isinstance(answer["blind"], list)) == (verdict, True)
        assert all(isinstance(one["count"], int) and isinstance(one["evidence"], list) for one in answer["findings"])


def test_nothing_given_is_a_two() -> None:
    result = run("diagnose", "-o", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["verdict"] == "UNKNOWN"


def test_a_failure_of_the_command_itself_is_a_two(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Examination) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Examination, "answer", fail)
    result = run("diagnose", "--kernel-log", "-", stdin=LOST)
    assert result.exit_code == 2
    assert "ValueError while judging: a bug; there is no answer" in result.stderr


def test_check_calls_a_well_machine_ok(hardware: Hardware) -> None:
    result = run("check", "--host-root", str(hardware.root), "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (0, "OK"), result.output


def test_check_finds_a_lost_gpu_in_every_source_and_names_it_once(hardware: Hardware) -> None:
    inject(hardware, "gpu-lost", gpu=3)
    result = run("check", "--host-root", str(hardware.root), "-o", "json", "--boot-grace", "0s")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["verdict"], answer["recovery"]) == (1, "BAD", "reboot")
    faults = [(one["fault"], one["component"]) for one in answer["findings"]]
    assert ("GpuFallenOffBus", "gpu/pci-0000:86:00") in faults
    assert len(set(faults)) == len(faults)


def test_a_driver_that_hangs_leaves_the_answer_open_in_time(hardware: Hardware) -> None:
    inject(hardware, "nvml-hang")
    result = run("check", "--host-root", str(hardware.root), "-o", "json", "--deadline", "1s")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["verdict"]) == (2, "UNKNOWN")
    assert "ProbeHung" in {one["fault"] for one in answer["findings"]}


def test_a_device_that_is_missing_just_after_the_boot_leaves_the_answer_open(hardware: Hardware) -> None:
    inject(hardware, "gpu-missing", gpu=3)
    late = run("check", "--host-root", str(hardware.root), "-o", "json")
    assert (late.exit_code, json.loads(late.stdout)["verdict"]) == (2, "UNKNOWN"), late.output
    assert run("check", "--host-root", str(hardware.root), "--boot-grace", "0s").exit_code == 1


def test_a_proof_runs_and_says_what_passed(hardware: Hardware) -> None:
    result = run("prove", "--host-root", str(hardware.root), "--device", "cpu", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (0, "OK"), result.output
    assert "passed: memory" in result.stderr


def test_a_proof_names_the_gpu_that_the_driver_complains_of(hardware: Hardware) -> None:
    inject(hardware, "row-remap-failed", gpu=2)
    result = run("prove", "--host-root", str(hardware.root), "--device", "cpu", "-o", "json")
    (found,) = json.loads(result.stdout)["findings"]
    assert (result.exit_code, found["fault"], found["recovery"]) == (1, "GpuRowRemapFailed", "replace")
    assert found["component"] == f"gpu/{hardware.state.gpus[2].uuid}"


def test_without_a_driver_nothing_is_proved(tmp_path: Path) -> None:
    result = run("prove", "--host-root", str(tmp_path), "-o", "json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["verdict"]) == (2, Verdict.UNKNOWN)
    assert answer["findings"][0]["fault"] == "ProofUnfinished"


def test_the_catalogue_is_listed_and_explained() -> None:
    listed = json.loads(run("faults", "-o", "json").stdout)
    assert {"GpuFallenOffBus", "EfaMissing"} <= {one["fault"] for one in listed}
    shown = run("faults", "show", "gpufallenoffbus").stdout
    assert "fleetwell.io/GPUHealthy" in shown
    assert "Xids       79" in shown
    assert run("faults", "show", "79").stdout == shown


def test_a_name_that_is_nearly_right_gets_a_hint() -> None:
    result = run("faults", "show", "GpuFalenOfBus")
    assert result.exit_code == 1
    assert "hint: did you mean GpuFallenOffBus" in result.stderr


def test_the_node_problem_detectors_file_calls_us_rightly() -> None:
    config = json.loads((Path(__file__).parents[2] / "docs/deploy/node-problem-detector.json").read_text())
    for rule in config["rules"]:
        assert run(*rule["args"], "--help").exit_code == 0
        assert rule["condition"] in {one["type"] for one in config["conditions"]}


def test_a_table_of_faults_is_plain_in_a_pipe() -> None:
    assert run("faults").stdout.splitlines()[0].split() == ["FAULT", "CONDITION", "VERDICT", "RECOVERY", "MEANS"]
