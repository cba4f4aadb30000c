from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetwell.api import fields
from fleetwell.api.node_health import NodeFinding
from fleetwell.health.vocabulary import BootId, Clears, Component, FaultName, Finding, Recovery, Source, Verdict


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("250ms", 0.25), ("2d", 172800), ("0s", 0)]
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert fields.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5m!", "-5m", "1.5h"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="1h30m"):
        fields.seconds(text)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.31, "0.3s"), (7.0, "7s"), (42.4, "42s"), (3661, "1h1m"), (90000, "1d1h"), (-90, "-1m30s")]
)
def test_a_length_of_time_is_said_in_its_two_largest_units(seconds: float, said: str) -> None:
    assert fields.words(seconds) == said


def test_names_on_the_wire_keep_kubernetes_initials() -> None:
    assert fields.wire("expected_boot_id") == "expectedBootID"
    assert fields.wire("node_uid") == "nodeUID"
    assert fields.wire("max_unavailable_percent") == "maxUnavailablePercent"


@given(st.floats(min_value=0, max_value=4e9), st.integers(min_value=1))
def test_a_finding_survives_the_way_to_the_api_and_back(at: float, count: int) -> None:
    finding = Finding(
        fault=FaultName("GpuFallenOffBus"),
        component=Component("gpu/GPU-1"),
        verdict=Verdict.BAD,
        recovery=Recovery.REBOOT,
        source=Source.EVENT,
        probe="kernel_log",
        clears=Clears.BOOT,
        first_seen=at,
        last_seen=at,
        count=count,
        boot_id=BootId("b"),
        evidence=("Xid 79",),
    )
    back = NodeFinding.of(finding).finding()
    assert abs(back.first_seen - at) < 1e-5
    assert back == finding or dt.datetime.fromtimestamp(at, dt.UTC) == dt.datetime.fromtimestamp(
        back.first_seen, dt.UTC
    )
