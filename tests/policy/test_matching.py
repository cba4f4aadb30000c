from fleetwell.api.policy import Rule, Selector
from fleetwell.health.vocabulary import Recovery, Verdict
from fleetwell.policy.matching import asks_for_action, governing, intelligible, pool_of, rule_for, worst
from policy.builders import HARD, node, policy, spec


def test_the_higher_priority_governs_a_node() -> None:
    low, high = policy("low"), policy("high", priority=5)
    assert governing(node(), [low, high]) == (high, "")


def test_a_tie_names_both_policies_and_keeps_the_first_so_that_nothing_is_released() -> None:
    one, two = policy("one"), policy("two")
    governs, problem = governing(node(), [two, one])
    assert governs == one
    assert "one and two" in problem


def test_no_policy_governs_a_node_that_none_selects() -> None:
    assert governing(node(labels={}), [policy()]) == (None, "")


def test_a_selector_with_instance_types_takes_only_those() -> None:
    picky = policy(selector=Selector(match_labels={"gpu": "yes"}, instance_types=("p5.48xlarge",)))
    assert governing(node(instance_type="g6.xlarge"), [picky])[0] is None
    assert governing(node(instance_type="p5.48xlarge"), [picky])[0] == picky


def test_the_first_rule_that_names_a_fault_applies_and_globs_mind_the_case() -> None:
    special = Rule(name="remap", faults=("GpuRowRemapFailed",))
    rules = spec(rules=(special, HARD))
    assert rule_for(rules, "GpuRowRemapFailed") == special
    assert rule_for(rules, "GpuLost") == HARD
    assert rule_for(rules, "gpulost") is None


def test_the_pool_is_the_first_pool_label_that_the_node_wears() -> None:
    assert pool_of({"node.kubernetes.io/instance-type": "p5", "karpenter.sh/nodepool": "a"}, spec()) == "a"
    assert pool_of({}, spec()) == "default"


def test_the_worst_verdict_is_bad_and_nothing_is_ok() -> None:
    assert worst([Verdict.OK, Verdict.UNKNOWN, Verdict.CONFIG]) is Verdict.UNKNOWN
    assert worst([]) is Verdict.OK


def test_a_fault_that_the_catalogue_does_not_know_is_unintelligible() -> None:
    assert intelligible("GpuFallenOffBus")
    assert not intelligible("GpuUnknownXid")
    assert not intelligible("InventedTomorrow")


def test_what_asks_for_nothing_is_only_shown() -> None:
    assert not asks_for_action(Verdict.BAD, Recovery.NONE, HARD, suspected=False)
    assert not asks_for_action(Verdict.CONFIG, Recovery.REBOOT, HARD, suspected=False)
    assert not asks_for_action(Verdict.BAD, Recovery.REBOOT, None, suspected=False)
    shown = Rule(name="shown", faults=("*",), quarantine=False)
    assert not asks_for_action(Verdict.BAD, Recovery.REBOOT, shown, suspected=False)
