"""How sightings become one finding: first and last sight, count, evidence, and room."""

from fleetwell.health.stimuli import Event, Tick
from fleetwell.health.triage_state import Change
from fleetwell.health.vocabulary import HOST, Observation, Verdict, gpu
from health.stepped_node import GPU0, GPU1, Node, seen

HUNG = "NVRM: Xid (PCI:0000:b0:00): 119, pid=1, name=a, Timeout"


def lines(node: Node, *texts: str) -> tuple[Observation, ...]:
    read: list[Observation] = []
    for text in texts:
        node.now += 1
        read += node.reader.read(text, node.now)
    return tuple(read)


def test_a_finding_tells_its_first_and_its_latest_sight() -> None:
    node = Node()
    first = node.now + 1
    node.kernel(HUNG, HUNG, HUNG)
    assert (node.only.first_seen, node.only.last_seen, node.only.count) == (first, node.now, 3)


def test_equal_lines_count_each_also_when_another_line_follows() -> None:
    node = Node()
    node.step(Event(lines(node, HUNG, HUNG, HUNG, HUNG.replace(":b0:", ":b1:"))))
    assert {one.component: (one.count, one.last_seen) for one in node.findings} == {
        GPU0: (3, 1003.0),
        GPU1: (1, 1004.0),
    }


def test_one_text_that_speaks_of_two_places_is_two_findings() -> None:
    node = Node()
    (one,) = lines(node, HUNG)
    other = seen("GpuGspTimeout", GPU1, "kernel_log")
    node.step(Event((one, _told_as(other, one), one)))
    assert {found.component for found in node.findings} == {GPU0, GPU1}


def _told_as(seen_elsewhere: Observation, line: Observation) -> Observation:
    return Observation(
        probe=line.probe,
        fault=line.fault,
        component=seen_elsewhere.component,
        verdict=line.verdict,
        recovery=line.recovery,
        at=line.at,
        evidence=line.evidence,
        xid=line.xid,
    )


def test_a_step_says_what_it_opened_changed_counted_and_closed() -> None:
    node = Node()
    first = node.look("nvml", seen("GpuLost", verdict=Verdict.UNKNOWN))
    assert _names(first) == (["GpuLost"], [], [], [])
    again = node.look("nvml", seen("GpuLost", verdict=Verdict.UNKNOWN))
    assert _names(again) == ([], [], ["GpuLost"], [])
    worse = node.look("nvml", seen("GpuLost"))
    assert _names(worse) == ([], ["GpuLost"], [], [])
    node.look("nvml")
    gone = node.look("nvml")
    assert _names(gone) == ([], [], [], ["GpuLost"])
    assert [bool(change) for change in (first, again, worse, gone)] == [True, False, True, True]
    assert not node.step(Tick(node.now))


def _names(change: Change) -> tuple[list[str], ...]:
    kinds = (change.opened, change.changed, change.counted, change.closed)
    return tuple([one.fault for one in kind] for kind in kinds)


def test_a_consequence_is_evidence_of_its_root_in_either_order() -> None:
    torn = "NVRM: Xid (PCI:0000:b0:00): 45, pid=1, name=a, Ch 1"
    for order in ((HUNG, torn), (torn, HUNG)):
        node = Node()
        node.kernel(*order)
        assert node.only.fault == "GpuGspTimeout"
        assert set(node.only.evidence) == {HUNG, torn}
        assert node.only.first_seen == 1001.0
        assert node.only.count == 1


def test_lines_a_burst_apart_still_belong_together_and_those_of_another_boot_do_not() -> None:
    torn = "NVRM: Xid (PCI:0000:b0:00): 45, pid=1, name=a, Ch 1"
    node = Node()
    node.kernel(HUNG)
    node.kernel(torn, apart=30.0)
    assert len(node.findings) == 1
    node = Node()
    node.kernel(HUNG)
    node.reboot()
    node.kernel(torn)
    assert len(node.findings) == 2


def test_a_line_of_the_ring_that_would_have_aged_out_by_now_opens_nothing() -> None:
    node = Node()
    node.step(Tick(10_000.0))
    crash = "NVRM: Xid (PCI:0000:b0:00): 43, pid=1, name=a, Ch 1"
    node.step(Event(node.reader.read(crash, 6400.0)))
    assert node.findings == ()
    node.step(Event(node.reader.read(crash, 6401.0)))
    assert node.only.fault == "ApplicationFault"


def test_an_application_fault_ends_when_its_time_is_over_and_not_before() -> None:
    node = Node()
    node.step(Tick(10_000.0))
    node.step(Event(node.reader.read("NVRM: Xid (PCI:0000:b0:00): 43, pid=1, name=a, Ch 1", 10_000.0)))
    node.step(Tick(13_599.0))
    assert len(node.findings) == 1
    node.step(Tick(13_600.0))
    assert not node.findings


def test_a_full_table_gives_room_to_what_is_worse_and_to_nothing_else() -> None:
    node = Node()
    crash = "NVRM: Xid (PCI:0000:{:02x}:00): 43, pid=1, name=a, Ch 1"
    node.kernel(*(crash.format(number) for number in range(8)))
    node.kernel(crash.format(99))
    assert node.state.overflow == 1
    assert gpu("pci-0000:63:00") not in {one.component for one in node.findings}
    node.kernel(HUNG)
    assert len(node.findings) == 8
    assert node.state.overflow == 2
    assert node.findings[0].fault == "GpuGspTimeout"
    node.look("nvml", seen("GpuMissing", HOST))
    node.look("nvml", seen("GpuMissing", HOST))
    assert "GpuMissing" in {one.fault for one in node.findings}


def test_what_is_worse_gets_in_also_at_the_end_of_the_flood_that_filled_the_table() -> None:
    node = Node()
    crashes = [f"NVRM: Xid (PCI:0000:{number:02x}:00): 43, pid=1, name=a, Ch 1" for number in range(12)]
    node.step(Event(lines(node, *crashes, HUNG, *crashes)))
    assert len(node.findings) == 8
    assert node.findings[0].fault == "GpuGspTimeout"
    assert node.state.overflow == 4 + 1 + 5  # refused, the one that made room, and those again
