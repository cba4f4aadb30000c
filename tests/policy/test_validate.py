import pytest
from msgspec.structs import replace

from fleetwell.api.policy import Proof, ProofLevel, Remedy, Replacement, Rule, Rung, Selector
from fleetwell.policy.validate import problems
from policy.builders import HARD, SILENCE, TEMPLATE, spec


def test_a_good_policy_has_no_problems() -> None:
    assert problems(spec()) == []


def test_a_mistyped_fault_gets_a_hint() -> None:
    found = problems(spec(rules=(replace(HARD, faults=("GpuFallenOfBus",)),)))
    assert len(found) == 1
    assert "rules[0] (hardware).faults" in found[0]
    assert "did you mean GpuFallenOffBus?" in found[0]


def test_a_glob_that_matches_nothing_is_named() -> None:
    assert "matches no fault" in problems(spec(rules=(replace(HARD, faults=("Gpx*",)),)))[0]


def test_a_rule_that_never_applies_is_named() -> None:
    later = Rule(name="later", faults=("GpuLost",))
    assert "never applies" in problems(spec(rules=(HARD, later)))[0]


def test_a_ladder_out_of_order_or_with_a_rung_twice_is_named() -> None:
    reboot, swap = Rung(remedy=Remedy.REBOOT), Rung(remedy=Remedy.REPLACE)
    assert "stronger remedy stands before" in problems(spec(rules=(replace(HARD, ladder=(swap, reboot)),)))[0]
    assert "named twice" in problems(spec(rules=(replace(HARD, ladder=(reboot, reboot)),)))[0]
    assert "is empty" in problems(spec(rules=(replace(HARD, ladder=()),)))[0]


def test_replace_needs_a_provider_and_the_template_provider_a_template() -> None:
    assert "replacement.provider is none" in problems(spec(replacement=Replacement()))[0]
    assert problems(spec(replacement=Replacement(provider="template")))[0].startswith("replacement.template")
    unused = Replacement(provider="none", template=TEMPLATE)
    assert any("never used" in it for it in problems(spec(replacement=unused)))


def test_a_duration_that_cannot_be_read_is_named_with_its_place() -> None:
    found = problems(spec(rules=(replace(HARD, tolerate="soon"), SILENCE)))
    assert found[0].startswith("rules[0] (hardware).tolerate: 'soon' is not a duration")


def test_names_twice_an_empty_selector_and_no_pool_labels_are_named() -> None:
    found = problems(spec(rules=(HARD, replace(SILENCE, name="hardware")), selector=Selector(), pool_labels=()))
    assert any("another rule has this name" in it for it in found)
    assert any(it.startswith("selector:") for it in found)
    assert any(it.startswith("poolLabels:") for it in found)


@pytest.mark.parametrize(
    ("level", "deadline", "good"),
    [
        ("quick", "1m", True),
        ("medium", "10m", True),
        ("long", "10m", False),
        ("long", "1h", True),
        ("none", "0s", True),
    ],
)
def test_a_proof_that_cannot_end_in_time_is_named(level: str, deadline: str, *, good: bool) -> None:
    found = problems(spec(proof=Proof(level=ProofLevel(level), deadline=deadline)))
    assert (found == []) is good
    assert good or "proof.deadline: 10m is too short for level long" in found[0]
