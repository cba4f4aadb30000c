"""Values that several commands take, as people write them."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from fleetwell.cli import controller, options
from fleetwell.control.main import Options


@click.command
@options.timed("--wait", "1m", "For so long.")
@options.timed("--each", "10s", "Of them.", read=options.some_time)
def command(wait: float, each: float) -> None:
    click.echo(f"{wait:g} {each:g}")


def said(*arguments: str) -> str:
    return CliRunner().invoke(command, arguments).output.strip()


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", "90"), ("1h30m", "5400"), ("250ms", "0.25"), ("15", "15"), ("0.5", "0.5")]
)
def test_a_duration_has_units_and_a_plain_number_is_seconds(written: str, seconds: str) -> None:
    assert said("--wait", written, "--each", written) == f"{seconds} {seconds}"


def test_the_default_is_read_like_what_is_given() -> None:
    assert said() == "60 10"


@pytest.mark.parametrize("written", ["soon", "", "-1", "1e3", "nan", "inf", "5 s", "10sec"])
def test_what_is_no_duration_is_refused_with_an_example(written: str) -> None:
    assert "write numbers with the units ms, s, m, h, d, as in 90s or 1h30m" in " ".join(
        said("--wait", written).split()
    )


def test_no_time_at_all_is_refused_where_there_must_be_some() -> None:
    assert said("--wait", "0s") == "0 10"
    assert "'0s' is no time at all" in said("--each", "0s")
    assert "'0' is no time at all" in said("--each", "0")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    kept: list[Options] = []

    async def serve(chosen: Options) -> int:
        kept.append(chosen)
        return 0

    monkeypatch.setattr(controller, "serve", serve)
    monkeypatch.setattr(controller, "_log_to_stderr", lambda **_: None)
    return kept


def control(*arguments: str) -> Any:
    return CliRunner().invoke(controller.command, arguments)


def test_the_controllers_times_are_durations(served: list[Options]) -> None:
    assert control().exit_code == 0
    given = control(
        "--lease-duration", "1m", "--renew-deadline", "40", "--retry-period", "500ms", "--agent-stale-after", "5m"
    )
    assert given.exit_code == 0, given.output
    times = [
        (one.lease_duration, one.renew_deadline, one.retry_period, one.settings.agent_stale_after) for one in served
    ]
    assert times == [(15.0, 10.0, 2.0, 180.0), (60.0, 40.0, 0.5, 300.0)]


def test_times_that_cannot_be_safe_are_refused_before_anything_begins(served: list[Options]) -> None:
    assert control("--renew-deadline", "15s").exit_code == 2
    assert control("--retry-period", "5s").exit_code == 2
    assert control("--agent-stale-after", "0").exit_code == 2
    assert not served


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("P5.48xlarge ", "p5.48xlarge"),
        ("standard_nd96isr_h100_V5", "Standard_ND96isr_H100_v5"),
        ("bm.gpu.h100.8", "BM.GPU.H100.8"),
        ("X9.large", "X9.large"),
    ],
)
def test_an_instance_type_is_found_however_its_capitals_are_written(written: str, known: str) -> None:
    assert options.instance_type(click.Context(command), click.Option(["--instance-type"]), written) == known
