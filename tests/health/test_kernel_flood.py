"""A flood costs little, loses nothing that matters, and reads as the same lines one by one do."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetwell.health.kernel_flood import PIECE, KernelFlood
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.kmsg_record import parse_record
from fleetwell.health.stimuli import Event
from fleetwell.health.triage import findings, initial, step
from fleetwell.health.triage_state import TriageSettings, TriageState
from fleetwell.health.vocabulary import BootId, Finding, Observation, Verdict

SETTINGS = TriageSettings(max_findings=128)
GPUS = {f"0000:{bus:02x}:00": f"GPU-{bus:02x}" for bus in range(8)}


def raw(number: int, text: str, priority: int = 3, usec: int | None = None) -> bytes:
    return f"{priority},{number},{number * 50 if usec is None else usec},-;{text}\n".encode()


def xid(code: int, bus: int = 0, rest: str = "") -> str:
    return f"NVRM: Xid (PCI:0000:{bus:02x}:00): {code}{rest}"


def flooded(records: Iterable[bytes], batch: int = 500, reader: KernelLogReader | None = None) -> TriageState:
    flood = KernelFlood(reader or KernelLogReader(gpus=GPUS))
    state = initial(BootId("b"), SETTINGS)
    lines = list(records)
    for start in range(0, len(lines), batch):
        state, _ = step(state, Event(flood.read(lines[start : start + batch])), SETTINGS)
    return state


def one_by_one(records: Iterable[bytes]) -> TriageState:
    reader = KernelLogReader(gpus=GPUS)
    state = initial(BootId("b"), SETTINGS)
    for line in records:
        record = parse_record(line)
        if record is not None:
            state, _ = step(state, Event(reader.feed(record)), SETTINGS)
    return state


def told(state: TriageState) -> set[tuple[str, ...]]:
    return {(one.fault, one.component, one.verdict, one.recovery, str(one.suspected)) for one in findings(state)}


def by_fault(state: TriageState) -> dict[str, Finding]:
    return {one.fault: one for one in findings(state)}


BITS = [
    xid(45, 0, ", pid=1, name=a, Ch 1"),
    xid(45, 1, ", pid=1, name=a, Ch 1 caused by previous Xid 149"),
    xid(149, 1, ", NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x0)"),
    xid(145, 2, ", RLW_SRC_TRACK Nonfatal XC1 i0 Link 10 (0x04082907 0x00000008 0x0)"),
    xid(154, 2, ", GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
    xid(154, 2, ", GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
    xid(79, 3),
    xid(48, 4),
    xid(63, 4, ", Row Remapper"),
    xid(64, 4),
    xid(94, 4, ", pid=5, name=a, Contained"),
    xid(999, 5),
    "NVRM: Xid garbage",
    "NVRM: The NVIDIA GPU 0000:06:00.0",
    "NVRM: fallen off the bus and is not responding to commands.",
    "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Severity 1 Engine instance 30",
    xid(74, 7, ", NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"),
    xid(74, 7, ", NVLink: fatal error detected on link 3(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
    "NVRM: knvlinkUpdatePostRxDetLinkMask_IMPL: Failed to update Rx Detect Link mask!",
    "nvme nvme1: I/O 123 QID 4 timeout, aborting",
    "mlx5_core 0000:18:00.0 eth2: Link down",
    "usb 1-1: new high-speed USB device",
    *(
        xid(13, 0, f", pid={pid}, name=p, Graphics SM Warp Exception on (GPC 1, TPC {pid % 2}, SM 0): x")
        for pid in range(6)
    ),
    *(xid(31, 1, f", pid={pid}, name=p, MMU Fault") for pid in range(4)),
]


@given(
    st.lists(st.tuples(st.sampled_from(BITS), st.integers(0, 40_000_000), st.sampled_from([3, 3, 3, 12])), max_size=60),
    st.sampled_from([1, 7, 100]),
)
@settings(deadline=None, max_examples=150)
def test_read_in_batches_a_log_says_what_it_says_line_by_line(lines: list[tuple[str, int, int]], batch: int) -> None:
    usec, records = 0, []
    for number, (text, apart, priority) in enumerate(lines):
        usec += apart
        records.append(raw(number, text, priority, usec))
    assert told(flooded(records, batch)) == told(one_by_one(records))


def test_equal_lines_are_one_finding_with_their_number() -> None:
    line = xid(95, 3, ", pid=1234, name=python3, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No")
    (finding,) = findings(flooded(raw(number, line) for number in range(20_000)))
    assert (finding.count, len(finding.evidence)) == (20_000, 1)
    assert (finding.first_seen, finding.last_seen) == (0.0, 19_999 * 50 / 1e6)


def test_two_lines_that_alternate_are_each_counted() -> None:
    lines = (xid(149, 1, ", NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x0 0x0)"), xid(119, 2, ", Timeout"))
    counts = {one.fault: one.count for one in findings(flooded(raw(n, lines[n % 2]) for n in range(20_000)))}
    assert counts == {"NvlinkDown": 10_000, "GpuGspTimeout": 10_000}


def hostile(number: int) -> str:
    return (
        xid(31, number % 8, f", pid={number}, name=x): 79, y, MMU Fault {number}"),
        f"NVRM: Xid (PCI:{number & 0xFFFF:04x}:{number >> 16:02x}:00): {number % 300}, pid={number}, name=p, Ch 1",
        xid(
            144 + number % 7,
            number % 8,
            f", RLW_X Nonfatal XC1 i0 Link {number % 18} (0x{number:08x} 0x{number:08x} 0x0)",
        ),
        f"NVRM: RmInitAdapter {number}",
        f"p[{number}]: segfault at {number:x} ip 0 sp 0 error 4 in libnccl.so.2[7f+1]",
    )[number % 5]


def test_hostile_lines_that_all_differ_are_bounded_and_said() -> None:
    state = flooded(raw(number, hostile(number)) for number in range(20_000))
    assert len(state.kept) <= SETTINGS.max_findings
    assert state.overflow
    unread = by_fault(flooded(raw(number, f"NVRM: RmInitAdapter {number}") for number in range(20_000)))[
        "KernelLogFlood"
    ]
    assert unread.count > 10_000
    assert (unread.verdict, unread.recovery) == (Verdict.UNKNOWN, "none")


@pytest.mark.parametrize(
    "bad",
    [xid(79, 6), xid(64, 6), xid(119, 6, ", Timeout after 6s"), "NVRM: GPU 0000:06:00.0: GPU has fallen off the bus."],
)
@pytest.mark.parametrize("at", [5, 1500, 19_999])
def test_in_the_middle_of_a_flood_a_gpu_that_is_known_is_still_heard(bad: str, at: int) -> None:
    lines = [raw(number, bad if number == at else hostile(number)) for number in range(20_000)]
    assert "gpu/GPU-06" in {one.component for one in findings(flooded(lines)) if one.verdict is Verdict.BAD}


def test_a_burst_of_a_fabric_is_read_whole() -> None:
    lines = [
        xid(149, bus, f", NETIR_LINK_EVT  Fatal   XC0 i0 Link {link:02d} (0x004505c6 0x{link:08x} 0x0)")
        for bus in range(8)
        for link in range(18)
    ]
    state = flooded(raw(number, line) for number, line in enumerate(lines))
    assert sum(one.fault == "NvlinkDown" for one in findings(state)) >= SETTINGS.max_findings - 1
    assert state.overflow == 8 * 18 - SETTINGS.max_findings
    assert "KernelLogFlood" not in by_fault(state)


def unread(records: Iterable[bytes], batch: int) -> int:
    flood, lines = KernelFlood(KernelLogReader(gpus=GPUS)), list(records)
    seen = [one for start in range(0, len(lines), batch) for one in flood.read(lines[start : start + batch])]
    return sum(one.times for one in seen if one.fault == "KernelLogFlood")


@pytest.mark.parametrize("batch", [1, 10, 4096])
def test_lines_that_come_slowly_are_never_a_flood(batch: int) -> None:
    assert not unread((raw(number, hostile(number), usec=number * 100_000) for number in range(5000)), batch)


@pytest.mark.parametrize("batch", [10, 63, 1000])
def test_a_flood_is_one_however_it_is_brought(batch: int) -> None:
    assert unread((raw(number, f"NVRM: RmInitAdapter {number}") for number in range(20_000)), batch) > 15_000


def link_error(register: int, link: int = 3) -> str:
    return xid(149, 2, f", NETIR_LINK_EVT  Fatal   XC0 i0 Link {link:02d} (0x004505c6 0x{register:08x} 0x0)")


def test_after_a_flood_the_next_line_of_its_kind_is_read_again() -> None:
    lines = [raw(number, link_error(number)) for number in range(3000)]
    lines.append(raw(3000, link_error(0, link=9), usec=60_000_000))
    assert "nvlink/GPU-02/9" in {one.component for one in findings(flooded(lines))}


def test_a_line_that_ends_with_its_number_is_not_taken_for_a_shorter_number() -> None:
    """What a saved log gives has no newline at its end."""
    lines = [raw(n, xid(7, 3, f", pid={n}, name=p, Ch 1")).rstrip() for n in range(5)]
    lines += [raw(n, xid(79, 3)).rstrip() for n in range(5, 10)]
    assert by_fault(flooded(lines))["GpuFallenOffBus"].count == 5


@pytest.mark.parametrize("spelled", ["{}", "{}.0"])
@pytest.mark.parametrize("change", [str.lower, str.upper])
def test_a_known_gpu_is_heard_however_it_is_spelled_among_countless_others(
    spelled: str, change: Callable[[str], str]
) -> None:
    address = change(spelled.format("0000:ab:00"))
    lines = [f"NVRM: Xid (PCI:{n:04x}:11:00): 79, pid=1, name=p" for n in range(5000)]
    lines.append(f"NVRM: Xid (PCI:{address}): 79, pid=1, name=p")
    reader = KernelLogReader(gpus={"0000:ab:00": "GPU-ab"})
    state = flooded((raw(n, line) for n, line in enumerate(lines)), reader=reader)
    assert "gpu/GPU-ab" in {one.component for one in findings(state)}


def test_what_user_space_wrote_costs_no_reading() -> None:
    assert findings(flooded(raw(number, xid(79), 12) for number in range(3 * PIECE))) == ()


def test_records_of_another_form_are_counted_and_gaps_told_once() -> None:
    flood = KernelFlood(KernelLogReader())
    seen = flood.read(
        [b"", b"hello", b"3,x,1,-;NVRM: Xid", b"9999999999999999,1", b"3,1," + b"9" * 5000 + b",-;NVRM: Xid (PCI:"]
    )
    assert flood.dropped == 5
    assert seen == ()
    flood = KernelFlood(KernelLogReader())
    gaps = flood.read([raw(0, "a"), raw(5, "b"), raw(9, "c"), raw(20, "d"), raw(21, "e")])
    assert [(one.fault, one.times) for one in gaps] == [("KernelLogGap", 1), ("KernelLogGap", 2)]
    assert gaps[0].evidence == "records 1 to 4 of the kernel log are missing"
    assert flood.read([raw(22, "f"), raw(23, "g")]) == ()


def test_a_line_that_goes_on_is_told_again_so_that_what_it_causes_joins_it() -> None:
    lines = [raw(number, xid(119, 2, ", Timeout"), usec=number * 1_000_000) for number in range(100)]
    lines.append(raw(100, xid(45, 2, ", pid=1, name=a, Ch 1"), usec=100_000_000))
    assert set(by_fault(flooded(lines))) == {"GpuGspTimeout"}


def test_what_is_a_fault_by_its_rate_is_none_when_it_comes_seldom_again() -> None:
    line = "mlx5_core 0000:18:00.0 eth2: Link down"
    flood = KernelFlood(KernelLogReader())
    day = 86_400_000_000
    faults = [[one.fault for one in flood.read([raw(n, line, usec=n * 1000 if n < 5 else n * day)])] for n in range(8)]
    assert faults == [["NicLinkNoted"]] * 2 + [["NicLinkFlapping"]] * 3 + [["NicLinkNoted"]] * 3


def test_once_devices_are_named_lines_are_put_to_them() -> None:
    reader = KernelLogReader()
    flood = KernelFlood(reader)
    (first,) = flood.read([raw(0, xid(79))])
    reader.set_devices(GPUS, {})
    (second,) = flood.read([raw(1, xid(79))])
    assert (first.component, second.component) == ("gpu/pci-0000:00:00", "gpu/GPU-00")


@pytest.mark.parametrize(
    "line", [lambda number: xid(43, 0, f", pid={number}, name=p, Ch 1"), hostile], ids=["like", "unlike"]
)
def test_how_much_is_read_does_not_grow_with_the_flood(
    line: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    read_line = KernelLogReader.read_line

    def counted(self: KernelLogReader, text: str, at: float) -> object:
        nonlocal reads
        reads += 1
        return read_line(self, text, at)

    monkeypatch.setattr(KernelLogReader, "read_line", counted)
    spent = []
    for size in (PIECE * 2, PIECE * 4):
        reads = 0
        flooded((raw(number, line(number)) for number in range(size)), batch=1000)
        spent.append(reads)
    assert spent[1] - spent[0] < 2 * 200  # two windows more, each with a share of at most so many


def test_observations_stand_for_as_many_lines_as_there_were() -> None:
    seen: list[Observation] = list(
        KernelFlood(KernelLogReader()).read([raw(n, xid(43, 0, f", pid={n}, name=p")) for n in range(3000)])
    )
    assert sum(one.times for one in seen) == 3000
    assert len(seen) < 20
