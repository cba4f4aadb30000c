"""The proof's data file."""

from __future__ import annotations

import itertools

import pytest

from fleetwell.api.policy import ProofLevel
from fleetwell.probes.proof_thresholds import CPU, GENERIC, thresholds

DATA = thresholds()


def test_every_level_of_a_policy_has_its_data() -> None:
    assert set(DATA.levels) == set(DATA.cpu_levels) == {level.value for level in ProofLevel} - {"none"}


@pytest.mark.parametrize("name", list(DATA.models))
def test_every_model_says_where_its_figures_come_from(name: str) -> None:
    model = DATA.models[name]
    assert model.source
    assert model.names
    assert all(dtype in DATA.bounds for dtype in model.tflops)
    assert 0 < model.compute_floor < 1
    assert bool(model.collective_gbps) == bool(model.collective_gpus) == bool(model.collective_floor)


def test_no_board_is_of_two_models() -> None:
    names = [name for model in DATA.models.values() for name in model.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("level", [*DATA.levels.values(), *DATA.cpu_levels.values()])
def test_every_pattern_of_a_level_exists(level: object) -> None:
    assert set(getattr(level, "patterns")) <= set(DATA.patterns)  # noqa: B009 (parametrize gives an object)


def test_a_longer_level_does_not_do_less() -> None:
    quick, medium, long = (DATA.levels[name] for name in ("quick", "medium", "long"))
    assert quick.memory_share < medium.memory_share <= long.memory_share
    assert set(quick.patterns) < set(medium.patterns) < set(long.patterns)
    assert quick.seconds < medium.seconds < long.seconds
    assert quick.seeds == medium.seeds < long.seeds


def test_a_board_that_is_not_listed_is_checked_in_formats_that_every_board_has() -> None:
    model = DATA.model("NVIDIA X1")
    assert DATA.dtypes(DATA.levels["medium"], model) == GENERIC
    assert model.floor("float16") == 0
    assert DATA.model(CPU).floor("integer") > 0


def test_a_collective_is_judged_only_at_the_number_of_devices_of_its_figure() -> None:
    h100 = DATA.model("NVIDIA H100 80GB HBM3")
    assert h100.collective(8) == pytest.approx(414)
    assert h100.collective(4) == 0


def test_a_higher_diagnostic_needs_all_that_a_lower_one_does_and_more_time() -> None:
    for lower, higher in itertools.pairwise(DATA.diagnostics):
        assert lower.number + 1 == higher.number
        assert lower.seconds < higher.seconds
        assert lower.must <= higher.must
    assert [one.number for one in DATA.diagnostics] == [1, 2, 3, 4]
    assert {name: DATA.begins(name) for name in ("memory", "eud", "memtest", "pulse", "Denylist")} == {
        "memory": 2,
        "eud": 3,
        "memtest": 4,
        "pulse": 4,
        "Denylist": 1,
    }
