"""Any input: nothing fails, nothing is heard from user space, garbage is unknown, and time is linear."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetwell.health.kernel_flood import KernelFlood
from fleetwell.health.kernel_log import KernelLogReader, parse
from fleetwell.health.log_forms import records
from health.kernel_log_promises import CLAIM, hold_for_claim, hold_for_raw, hold_for_text

STARTS = st.sampled_from(
    [
        "",
        "NVRM: ",
        "NVRM: Xid (PCI:0000:b3:00): ",
        "NVRM: Xid (PCI:0000:b3:00 GPU-I:02): 31, ",
        "NVRM: Xid (PCI:0000:b3:00): 154, GPU recovery action changed from ",
        "NVRM: Xid (PCI:0000:b3:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link ",
        "NVRM: Xid (PCI:0000:b3:00): 74, NVLink: fatal error detected on link 14(",
        "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): ",
        "mlx5_core 0000:18:00.0: ",
        "nvidia 0000:b3:00.0: PCIe Bus Error: severity=",
        "efa 0000:4f:00.0: ",
        "INFO: task ",
        "Memory cgroup out of memory: Killed process ",
        "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: ",
        "nvme nvme0: I/O ",
        "EXT4-fs (",
    ]
)
PREFIXES = st.sampled_from(
    [
        "",
        "[ 1.0] ",
        "Jun 12 16:31:50 host kernel: ",
        "kern  :err   : ",
        "3,1,2,-;",
        '{"MESSAGE": "',
        "<3>",
        "2025-01-25T10:34:54,8+00:00 ",
    ]
)
BYTES = st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode))


@given(st.text(max_size=200))
@settings(max_examples=300)
def test_garbage_that_claims_to_be_an_xid_is_unknown(garbage: str) -> None:
    hold_for_claim(garbage)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"3,%d,5,-;", b"%d,1,1,-;", b"6,%d,9,c;", b"%d", b"4,%d,7,-,caller=T1;"]),
            st.integers(0, 99),
            STARTS,
            BYTES,
        ),
        max_size=12,
    )
)
@settings(max_examples=200, deadline=None)
def test_no_records_stop_the_agent(parts: list[tuple[bytes, int, str, bytes]]) -> None:
    hold_for_raw([head % number + start.encode() + tail + b"\n" for head, number, start, tail in parts])


@given(st.lists(st.tuples(PREFIXES, STARTS, BYTES), max_size=8))
@settings(max_examples=200, deadline=None)
def test_no_saved_log_stops_the_reader(parts: list[tuple[str, str, bytes]]) -> None:
    hold_for_text(b"\n".join(prefix.encode() + start.encode() + tail for prefix, start, tail in parts))


def flooded(line: str) -> None:
    KernelFlood(KernelLogReader()).read([b"3,0,1,-;" + line.encode() + b"\n"])


def saved(line: str) -> None:
    for record in records([line]):
        parse.__wrapped__(record.text)


def spent(work: Callable[[str], None], line: str) -> float:
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        for _ in range(6):
            work(line)
        best = min(best, time.process_time() - begin)
    return best


@pytest.mark.parametrize("work", [flooded, saved])
@pytest.mark.parametrize(
    ("start", "filler"),
    [
        (CLAIM + "149, ", "AAA_B "),
        (CLAIM + "31, pid=1, name=", ", "),
        (CLAIM + "74, ", "link 1(0x1, "),
        (CLAIM + "154, ", "GPU recovery action changed from 0x0 ("),
        ("NVRM: ", "[NV_ERR_"),
        ("mlx5_core 0000:18:00.0: ", "timeout. "),
        ("a[1]: segfault at ", "in libnccl"),
        ("traps: ", "x[1] in libnccl"),
        ("nvme nvme0: I/O ", "timeout"),
        ("INFO: task ", "a:1 blocked for more "),
        ("[", " 1.0"),
        ("kern  :err   : ", "2025-01-25T10:34:54"),
        ('{"MESSAGE": "', "\\u0000"),
        ("Jun 12 16:31:50 ", "host "),
        ("<3>", "<3>"),
        ("3,1,2", ",x"),
        ("XFS (a): ", "Shutting down "),
        ("bond0: (slave eth0): ", "link status "),
    ],
)
def test_twice_the_text_takes_no_more_than_twice_the_time(work: Callable[[str], None], start: str, filler: str) -> None:
    """Below the bounds on a line's length too: there a pattern that tries again and again would take four times."""
    short, long = (start + filler * (size // len(filler)) for size in (1000, 2000))
    once, twice = spent(work, short), spent(work, long)
    assert twice < 3 * once + 0.01


def test_a_line_beyond_the_bounds_takes_no_longer_than_one_at_them() -> None:
    begin = time.process_time()
    for line in (CLAIM + "149, " + "A" * 1_000_000, "[" * 1_000_000, '{"a":' * 200_000):
        flooded(line)
        saved(line)
    assert time.process_time() - begin < 1
