"""When an application fault that comes back points at the hardware."""

import pytest

from fleetwell.health.stimuli import Event
from health.stepped_node import Node


def crash(pid: int, number: int = 31, bus: str = "b0") -> str:
    return f"NVRM: Xid (PCI:0000:{bus}:00): {number}, pid={pid}, name=a, MMU Fault"


def suspected(node: Node) -> bool:
    return any(one.suspected for one in node.findings)


def test_a_fault_whose_owner_cannot_be_told_may_be_one_that_counts_already() -> None:
    node = Node()
    owners = {1: "pod-a", 2: "pod-b", 3: ""}
    node.kernel(crash(1), crash(2), crash(3), owners=owners)
    assert not suspected(node)
    node.kernel(crash(4), owners={4: "pod-d"})
    assert suspected(node)


@pytest.mark.parametrize(("apart", "counts"), [(43_200.0, True), (43_200.5, False)])
def test_three_owners_within_a_day_and_no_more(apart: float, counts: bool) -> None:
    node = Node()
    node.kernel(crash(1), crash(2), crash(3), apart=apart)
    assert suspected(node) is counts


def test_a_suspicion_stays_one_when_the_fault_comes_again() -> None:
    node = Node()
    node.kernel(crash(1), crash(2), crash(3))
    before = node.only
    change = node.step(Event(node.reader.read(crash(3), node.now + 1), {}))
    assert node.only.suspected
    assert node.only.count == before.count + 1
    assert not change


def test_places_are_bounded_and_the_quietest_is_forgotten() -> None:
    node = Node()
    node.kernel(crash(1), crash(2))
    for number in range(256):
        unit = f"(GPC {number // 16}, TPC {number % 16}, SM 0)"
        node.kernel(f"NVRM: Xid (PCI:0000:b1:00): 13, pid=9, name=a, Graphics SM Warp Exception on {unit}: x")
    assert len(node.state.repetitions) == 256
    node.kernel(crash(3))
    assert not suspected(node)
