from fleetwell.api.incident import Phase
from fleetwell.policy.case import machine_writer
from fleetwell.policy.instructions import Quarantine
from fleetwell.policy.opening import vetoed
from policy.builders import BUS, REMAP, finding, node, policy
from policy.world import World, to_remedying


def quarantined_world() -> World:
    world = World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"), policies=[policy()])
    to_remedying(world)
    world.turn()
    return world


def test_s23_our_taint_taken_away_by_a_person_is_a_veto() -> None:
    world = quarantined_world()
    world.change("ip-1", our_taint=False, taint_removed_by="kubectl-taint")
    world.turns(4)
    assert world.phase() is Phase.VETOED
    assert not world.nodes["ip-1"].our_taint
    assert len(world.episodes) == 1
    assert len(world.done(Quarantine)) == 1


def test_s23_our_taint_taken_away_without_a_trace_of_a_program_is_a_veto() -> None:
    world = quarantined_world()
    world.change("ip-1", our_taint=False, taint_removed_by="")
    world.turns(4)
    assert world.phase() is Phase.VETOED
    assert len(world.done(Quarantine)) == 1


def test_s23_a_veto_ends_with_a_new_boot_a_new_component_or_a_stronger_recovery() -> None:
    world = quarantined_world()
    world.change("ip-1", our_taint=False, taint_removed_by="kubectl-edit")
    world.turn()
    past = list(world.episodes.values())
    assert vetoed(node("ip-1", finding()), past)
    assert not vetoed(node("ip-1", finding(boot="boot-2"), boot="boot-2"), past)
    assert not vetoed(node("ip-1", finding(BUS, "gpu/GPU-2")), past)
    assert not vetoed(node("ip-1", finding(REMAP)), past)
    assert not vetoed(node("ip-1", finding(), uid="another"), past)


def test_s23_what_was_still_listed_of_an_earlier_boot_is_not_what_the_person_looked_at() -> None:
    old = finding(BUS, "gpu/GPU-2", boot="boot-0")
    world = World.of(node("ip-1", finding(), old), node("ip-2"), node("ip-3"), policies=[policy()])
    to_remedying(world)
    world.turn()
    world.change("ip-1", our_taint=False, taint_removed_by="kubectl-taint")
    world.turn()
    past = list(world.episodes.values())
    assert vetoed(node("ip-1", finding()), past)
    assert not vetoed(node("ip-1", finding(), finding(BUS, "gpu/GPU-2")), past)


def test_a_taint_taken_away_by_a_program_is_put_back_once_and_then_a_person_is_asked() -> None:
    world = quarantined_world()
    world.change("ip-1", our_taint=False, taint_removed_by="kubelet")
    world.turns(2)
    assert world.nodes["ip-1"].our_taint
    world.change("ip-1", our_taint=False, taint_removed_by="kubelet")
    world.turns(3)
    assert world.phase() is Phase.NEEDS_PERSON
    assert not world.nodes["ip-1"].our_taint
    assert len(world.done(Quarantine)) == 2


def test_a_mark_that_was_never_seen_is_not_missed() -> None:
    world = World.of(node("ip-1", finding()), node("ip-2"), node("ip-3"))
    world.obey = lambda it: not isinstance(it, Quarantine)
    world.turn()
    world.change("ip-1", taint_removed_by="kubectl-edit")
    world.turns(3)
    assert world.phase() is Phase.QUARANTINED


def test_programs_and_people_are_told_apart_by_their_field_manager() -> None:
    programs = ("kubelet", "kube-controller-manager", "fleetwell", "karpenter", "node-feature-operator")
    assert all(machine_writer(name) for name in programs)
    assert not any(machine_writer(name) for name in ("kubectl-edit", "kubectl-taint", "k9s", "Mozilla"))


def test_an_ended_episode_never_undoes_a_later_one() -> None:
    world = quarantined_world()
    world.policies = []
    world.turns(2)
    assert world.finished("inc-1")
    world.policies = [policy()]
    world.turns(4)
    assert world.nodes["ip-1"].our_taint
    assert world.finished("inc-1")
