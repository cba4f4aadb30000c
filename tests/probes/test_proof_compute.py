"""The proof's products: right, the same again, fast enough, and not too hot."""

from __future__ import annotations

import msgspec
import pytest

from fleetwell.probes.proof_compute import compute
from fleetwell.probes.proof_device import CannotTellError, Vitals
from fleetwell.probes.proof_rows import Measured, Row
from fleetwell.probes.proof_thresholds import Thresholds, thresholds
from probes.proof_devices import WARM, FaultyDevice, small


@pytest.fixture
def limits() -> Thresholds:
    """Give the real limits with a figure that a small product on a fake clock can have: 16^3 * 2 / 1e-11 s is 819."""
    given = thresholds()
    exact = given.bounds["integer"]
    return msgspec.structs.replace(given, bounds=dict.fromkeys(given.bounds, exact))


def judged(device: FaultyDevice, limits: Thresholds, level: str = "medium", within: float = 3600) -> dict[str, Row]:
    rows = compute(device, small(level, seconds=0.0 if level == "quick" else 1e-7), limits, device.clock.time(within))
    return {row.check: row for row in rows if isinstance(row, Row)}


def test_a_gpu_that_is_well_passes_and_says_its_rate(limits: Thresholds) -> None:
    rows = judged(FaultyDevice(), limits)
    assert {row.verdict for row in rows.values()} == {"OK"}
    assert "bfloat16 at 819 TFLOP/s" in rows["compute"].said
    assert "at most 64 °C and 1400 MHz" in rows["clocks"].said


def test_a_wrong_product_is_found(limits: Thresholds) -> None:
    row = judged(FaultyDevice(wrong_from=1), limits)["compute"]
    assert row.verdict == "BAD"
    assert "off its reference" in row.said
    assert row.detail.startswith("GpuProofFailed on gpu/GPU-1: ")


def test_a_product_that_is_wrong_only_sometimes_is_found(limits: Thresholds) -> None:
    row = judged(FaultyDevice(wrong_from=12), limits)["compute"]
    assert row.verdict == "BAD"
    assert "differ from the first" in row.said


def test_the_quick_level_finds_a_wrong_product_and_judges_no_speed(limits: Thresholds) -> None:
    assert judged(FaultyDevice(wrong_from=1), limits, "quick")["compute"].verdict == "BAD"
    assert judged(FaultyDevice(seconds_each=1), limits, "quick")["compute"].verdict == "OK"


def test_a_slow_gpu_is_found_with_its_rate_and_its_floor(limits: Thresholds) -> None:
    row = judged(FaultyDevice(seconds_each=4e-11), limits)["compute"]
    assert row.verdict == "BAD"
    assert "205 TFLOP/s under load, the floor is 494 (50% of 989)" in row.said


def test_a_model_without_figures_is_checked_for_right_results_and_says_that_speed_was_not_judged(
    limits: Thresholds,
) -> None:
    rows = judged(FaultyDevice(model="NVIDIA X1", seconds_each=1e-9), limits)
    assert rows["compute"].verdict == "OK"
    assert "no speed figure for 'NVIDIA X1'" in rows["compute"].said


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (msgspec.structs.replace(WARM, celsius=88), "88 °C under load, the limit is 88 °C"),
        (msgspec.structs.replace(WARM, celsius=91, slowdown_celsius=None), "91 °C under load"),
        (msgspec.structs.replace(WARM, reasons=0x40), "throttled (hw thermal) in 100%"),
        (msgspec.structs.replace(WARM, reasons=0x80 | 0x8), "throttled (hw power brake)"),
        (msgspec.structs.replace(WARM, clock_mhz=345), "SM clock 345 MHz under load, the floor is 800 MHz"),
    ],
)
def test_a_gpu_that_is_hot_or_throttles_itself_fails_although_it_computes_rightly(
    reading: Vitals, said: str, limits: Thresholds
) -> None:
    rows = judged(FaultyDevice(reading=reading), limits)
    assert rows["compute"].verdict == "OK"
    assert rows["clocks"].verdict == "BAD"
    assert said in rows["clocks"].said


@pytest.mark.parametrize("reading", [None, Vitals(celsius=60), Vitals()])
def test_heat_and_clocks_that_are_not_told_are_no_pass(reading: Vitals | None, limits: Thresholds) -> None:
    assert judged(FaultyDevice(reading=reading), limits)["clocks"].verdict == "UNKNOWN"


def test_a_load_that_was_cut_short_is_no_pass(limits: Thresholds) -> None:
    with pytest.raises(CannotTellError, match="s of load were had"):
        judged(FaultyDevice(), limits, within=2e-8)


def test_the_long_level_gives_every_input_a_digest_to_compare(limits: Thresholds) -> None:
    device = FaultyDevice()
    told = list(compute(device, small("long", seconds=1e-7), limits, device.clock.time()))
    digests = [one for one in told if isinstance(one, Measured) and one.digest]
    assert len({one.digest for one in digests}) == thresholds().levels["long"].seeds
