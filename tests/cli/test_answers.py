import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleetwell.api.fields import seconds
from fleetwell.cli import cli, prove
from fleetwell.diagnose.examination import Examination
from fleetwell.health.vocabulary import Verdict
from fleetwell.lab import machine
from fleetwell.lab.faults import inject
from fleetwell.lab.hardware import Hardware
from fleetwell.probes import launch
from fleetwell.probes.child import Outcome, SupervisedChild
from fleetwell.probes.protocol import ProofRow

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


def test_a_monitor_gets_the_first_line_alone() -> None:
    whole = run("diagnose", "--kernel-log", "-", stdin=LOST)
    line = run("diagnose", "--kernel-log", "-", "-o", "line", stdin=LOST)
    assert line.stdout.splitlines() == whole.stdout.splitlines()[:1]
    assert line.exit_code == whole.exit_code == 1


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
        ("diagnose", "--driver", "570.x"),
        ("diagnose", "--expect", "gpus=8,gpus=4"),
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


def test_the_same_machine_gives_the_same_answer_whichever_probe_is_first(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(hardware, "gpu-lost", gpu=3)
    arguments = ("check", "--host-root", str(hardware.root), "-o", "json", "--boot-grace", "0s")
    first = run(*arguments)
    run_child = SupervisedChild.run

    async def late(child: SupervisedChild, *args: Any, **kwargs: Any) -> Outcome:
        outcome = await run_child(child, *args, **kwargs)
        await asyncio.sleep(0.3 if child.name in {"nvml", "sysfs"} else 0)
        return outcome

    monkeypatch.setattr(SupervisedChild, "run", late)
    assert run(*arguments).stdout == first.stdout


def test_where_nothing_says_how_many_gpus_there_must_be_that_is_said(hardware: Hardware) -> None:
    (hardware.root / "sys/class/dmi/id/product_name").write_text("a server of some sort\n")
    said = "whether a GPU is missing: nothing says how many there must be; use --expect gpus=N"
    blind = json.loads(run("check", "--host-root", str(hardware.root), "-o", "json").stdout)["blind"]
    assert said in blind
    told = json.loads(run("check", "--host-root", str(hardware.root), "-o", "json", "--expect", "gpus=8").stdout)
    assert said not in told["blind"]
    near = run("diagnose", "--host-root", str(hardware.root), "--instance-type", "p5.48xlrge").stdout
    assert "how many GPUs a p5.48xlrge must have: the table does not have it (it has p5.48xlarge)" in near
    capitals = run("diagnose", "--host-root", str(hardware.root), "--instance-type", "P5.48XLARGE", "-o", "json")
    assert not [one for one in json.loads(capitals.stdout)["blind"] if "how many" in one]


def test_adapters_that_nothing_given_can_count_are_said() -> None:
    told = run("diagnose", "--kernel-log", "-", "--expect", "ib=8,efa=4", "-o", "json", stdin=LOST)
    assert {
        "whether all 8 InfiniBand adapters are there: give --host-root",
        "whether all 4 EFA interfaces are there: give --host-root",
    } <= set(json.loads(told.stdout)["blind"])


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
    assert "whether the GPUs work: this was a trial of the test on the CPU" in json.loads(result.stdout)["blind"]


def test_what_a_proof_could_not_ask_is_no_pass_but_said() -> None:
    rows = (
        ProofRow(check="memory", verdict=Verdict.OK, detail="all well"),
        ProofRow(check="dcgm", verdict=Verdict.OK, detail="blind: no dcgmi below /"),
    )
    answer = prove.judge(rows)
    assert (answer.verdict, answer.blind) == (Verdict.OK, ("dcgm: no dcgmi below /",))


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
    """Its fields are those of pkg/custompluginmonitor/types/config.go; what its Validate refuses is tried here."""
    config = json.loads((Path(__file__).parents[2] / "docs/deploy/node-problem-detector.json").read_text())
    assert set(config) <= {"plugin", "pluginConfig", "source", "conditions", "rules", "metricsReporting"}
    plugin = config["pluginConfig"]
    assert set(plugin) <= {
        "invoke_interval",
        "timeout",
        "max_output_length",
        "concurrency",
        "enable_message_change_based_condition_update",
        "skip_initial_status",
    }
    (rule,) = config["rules"]
    assert set(rule) <= {"type", "condition", "reason", "path", "args", "timeout"}
    assert (config["plugin"], rule["type"]) == ("custom", "permanent")
    assert run(*rule["args"], "--help").exit_code == 0
    assert rule["condition"] in {one["type"] for one in config["conditions"]}
    longest = seconds(rule["args"][rule["args"].index("--deadline") + 1])
    assert longest < seconds(rule["timeout"]) <= seconds(plugin["timeout"]) < seconds(plugin["invoke_interval"])


def test_the_line_for_the_node_problem_detector_fits_into_its_message(hardware: Hardware) -> None:
    config = json.loads((Path(__file__).parents[2] / "docs/deploy/node-problem-detector.json").read_text())
    (rule,) = config["rules"]
    arguments = [str(hardware.root) if one == "/host" else one for one in rule["args"]]
    inject(hardware, "gpu-lost", gpu=3)
    answer = run(*arguments, "--boot-grace", "0s")
    assert answer.exit_code == 1
    (line,) = answer.stdout.splitlines()
    assert line.startswith("BAD: ")
    assert len(line.encode()) <= config["pluginConfig"]["max_output_length"]


def test_a_table_of_faults_is_plain_in_a_pipe() -> None:
    assert run("faults").stdout.splitlines()[0].split() == ["FAULT", "CONDITION", "VERDICT", "RECOVERY", "MEANS"]
