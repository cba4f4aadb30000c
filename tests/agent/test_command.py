"""The command line of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleetwell.agent.settings import Settings
from fleetwell.cli import agent
from fleetwell.probes.inventory import Expected


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    kept: list[Settings] = []

    def run(settings: Settings) -> int:
        kept.append(settings)
        return 0

    monkeypatch.setattr(agent, "run", run)
    monkeypatch.setattr(agent, "log_to_stderr", lambda _format: None)
    return kept


def invoke(*arguments: str, **environment: str) -> Any:
    return CliRunner().invoke(agent.command, arguments, env=environment)


def test_times_are_durations_and_the_node_name_comes_from_the_pod(given: list[Settings]) -> None:
    result = invoke("--nvml-interval", "3s", "--orderly-reboot", "1m30s", "--expect", "gpus=8,efa=32", NODE_NAME="n1")
    assert result.exit_code == 0, result.output
    (settings,) = given
    assert settings.node_name == "n1"
    assert settings.nvml.interval == 3
    assert settings.orderly_reboot == 90
    assert settings.expect == Expected(gpus=8, nics=32)


def test_every_option_can_be_set_in_the_environment(given: list[Settings]) -> None:
    result = invoke(NODE_NAME="n1", FLEETWELL_AGENT_SYSFS_INTERVAL="5s", FLEETWELL_AGENT_REBOOT_COMMAND="a 'b c'")
    assert result.exit_code == 0, result.output
    assert given[0].sysfs.interval == 5
    assert given[0].reboot_command == ("a", "b c")


def test_a_container_runtime_may_keep_its_data_elsewhere(given: list[Settings]) -> None:
    invoke(NODE_NAME="n1")
    invoke("--runtime-root", "/data/containerd", NODE_NAME="n1")
    assert [one.runtime_root for one in given] == [None, Path("/data/containerd")]


def test_metrics_and_reports_have_an_address_unless_it_is_taken_away(given: list[Settings]) -> None:
    invoke(NODE_NAME="n1")
    invoke("--metrics-address", "", "--report-socket", "/run/r.sock", NODE_NAME="n1")
    assert [(one.metrics_address, str(one.report_socket)) for one in given] == [
        ("0.0.0.0:9420", "None"),
        ("", "/run/r.sock"),
    ]


@pytest.mark.parametrize(
    "arguments", [("--nvml-interval", "soon"), ("--expect", "tpus=8"), ("--metrics-address", "here")]
)
def test_what_cannot_be_read_is_a_usage_error(given: list[Settings], arguments: tuple[str, str]) -> None:
    result = invoke(*arguments, NODE_NAME="n1")
    assert result.exit_code == 2
    assert arguments[1] in result.output
    assert given == []


def test_second_opinions_follow_nvmls_interval_and_can_be_left_out(given: list[Settings]) -> None:
    result = invoke("--nvml-interval", "6s", "--dcgm-interval", "0s", "--operand-pause", "2h", NODE_NAME="n1")
    assert result.exit_code == 0, result.output
    (settings,) = given
    assert settings.nvidia_smi is not None
    assert (settings.nvidia_smi.interval, settings.nvidia_smi.again) == (600, 8)
    assert settings.dcgm is None
    assert settings.operand_pause == 7200


def test_a_look_is_repeated_sooner_while_not_all_is_well_and_defaults_stand_in_one_place(
    given: list[Settings], tmp_path: Path
) -> None:
    invoke(NODE_NAME="n1")
    (settings,) = given
    assert (settings.nvml.interval, settings.nvml.again) == (30, 10)
    meant = Settings(node_name="n1", host_root=tmp_path, state_dir=tmp_path)
    for name in ("nvml", "sysfs", "nvidia_smi", "dcgm", "maintenance_timing", "heartbeat"):
        assert getattr(settings, name) == getattr(meant, name), name
