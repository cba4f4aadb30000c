from fleetwell.policy.explain import explain
from policy.builders import REMAP, finding, node
from policy.world import World, to_proving


def lines(world: World, name: str = "inc-1") -> str:
    episode = world.episodes[name]
    return "\n".join(explain(episode, world.around(episode), world.fleet(), world.now))


def test_it_says_evidence_rule_clock_budget_pace_next_and_how_to_stop_it() -> None:
    world = World.of(*(node(f"ip-{number}", finding()) for number in (1, 2)), node("ip-3"))
    world.turns(3)
    text = lines(world, "inc-2")
    assert "GpuFallenOffBus on gpu/GPU-1 is BAD, asks for reboot (now)" in text
    assert "rule: hardware of policy gpus (Enforce): quarantine" in text
    assert "tolerated" in text
    assert "held (Budget)" in text
    assert "1 of 3 out, limit 1: ip-1" in text
    assert "0 of 2 remedies under way" in text or "1 of 2 remedies under way" in text
    assert "to stop it: set spec.hold on incident inc-2" in text


def test_it_tells_evidence_of_an_earlier_boot_from_that_of_this_one() -> None:
    world = World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"))
    to_proving(world)
    world.says("ip-1", finding(REMAP, boot="boot-1"), settled=True)
    world.turn()
    text = lines(world)
    assert "of an earlier boot: no ground for an action" in text
    assert "attempt 1: reboot Succeeded" in text
    assert "proof 1: no answer yet" in text


def test_an_ended_episode_has_no_next_step() -> None:
    world = World.of(node("ip-1", finding()), node("ip-2"))
    world.turn()
    del world.nodes["ip-1"]
    world.turn()
    text = lines(world)
    assert "Gone" in text
    assert "next:" not in text
