"""Every form of line that the kernel prints about GPUs, and what it must never be taken for."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetwell.health.evidence import LIMIT
from fleetwell.health.kernel_log import KernelLogReader, parse
from fleetwell.health.kmsg_record import parse_record
from fleetwell.health.log_line import strip_prefix
from fleetwell.health.vocabulary import Observation, Recovery, Verdict
from fleetwell.health.xid_line import XidLine

GPUS = {"00000000:B3:00.0": "GPU-b3", "0000:c4:00.0": "GPU-c4"}


def read(*lines: str) -> list[Observation]:
    reader = KernelLogReader(gpus=GPUS, nics={"0000:4f:00.0": "rdmap79s0"})
    return [seen for number, line in enumerate(lines) for seen in reader.read(line, float(number))]


def xid(number: int, rest: str = "", pci: str = "0000:b3:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): {number}{rest}"


LINES = [
    # line, fault, component, recovery
    (xid(94, ", pid=2503421, name=python3, Ch 00000008"), "GpuContainedEcc", "gpu/GPU-b3", "restartWorkload"),
    (xid(94, ", Contained: SM (0x1). RST: No", "0000:b3:00.0"), "GpuContainedEcc", "gpu/GPU-b3", "restartWorkload"),
    (xid(95, ", Uncontained: LTC TAG (0x2, 0x1). RST: Yes"), "GpuUncontainedEcc", "gpu/GPU-b3", "resetGpu"),
    (xid(64, ", pid='<unknown>', name=<unknown>, Row Remapper Error"), "GpuRowRemapFailed", "gpu/GPU-b3", "replace"),
    (xid(63, ", Row Remapper: New row (0x1) marked, reset gpu"), "GpuRowRemapRecorded", "gpu/GPU-b3", "none"),
    (xid(48, ", pid=91, name=nv-hostengine, DBE at 0x1"), "GpuEccUncorrectable", "gpu/GPU-b3", "resetGpu"),
    (xid(79, ", pid='<unknown>', name=<unknown>, GPU has fallen"), "GpuFallenOffBus", "gpu/GPU-b3", "reboot"),
    (xid(79), "GpuFallenOffBus", "gpu/GPU-b3", "reboot"),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "GpuNoted", "gpu/pci-0000:03:00", "none"),
    (xid(119, ", pid=1, name=nvc:[driver], Timeout after 6s", "0002:00:00"), "GpuGspTimeout", None, "resetGpu"),
    (xid(120, ", GSP Error: Task 1 raised error code 0x5"), "GpuGspError", "gpu/GPU-b3", "resetGpu"),
    (xid(31, ", pid=5, name=python, Ch 8, intr 0. MMU Fault"), "ApplicationFault", "gpu/GPU-b3", "restartWorkload"),
    (xid(43, ", pid=5, name=python, Ch 00000008"), "ApplicationFault", "gpu/GPU-b3", "none"),
    (xid(109, ", pid=5, name=python, Ch 21, errorString CTX"), "GpuContextSwitchTimeout", "gpu/GPU-b3", "resetGpu"),
    (xid(136, ", Link 1\nmask 0x3"), "NvlinkTrainingFailed", "gpu/GPU-b3", "resetGpu"),
    (xid(13, ", pid=12, name=a: 79, b, Graphics SM"), "ApplicationFault", "gpu/GPU-b3", "restartWorkload"),
    (xid(45, ", pid=1, name=ray::WorkerDict, Ch 1"), "ApplicationChannelRemoved", "gpu/GPU-b3", "restartWorkload"),
    (xid(45, ", pid=1, name=python3, Ch 1 caused by previous Xid 149"), "NvlinkError", "gpu/GPU-b3", "resetGpu"),
    (xid(74, ", NVLink: fatal error detected on link 14(0x0, 0x0)"), "NvlinkError", "nvlink/GPU-b3/14", "resetGpu"),
    ("NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.", "GpuFallenOffBus", "gpu/GPU-b3", "reboot"),
    ("NVRM: RmInitAdapter failed! (0x62:0x65:1792)", "GpuInitFailed", "host", "reboot"),
    ("NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x26:0x56:1463)", "GpuInitFailed", "gpu/GPU-b3", "reboot"),
    ("NVRM: rm_init_adapter failed for device bearing minor number 0", "GpuInitFailed", "host", "reboot"),
    (
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x62) @ k.c:1",
        "GpuResetRequired",
        "host",
        "reboot",
    ),
    ("NVRM: API mismatch: the client has the version 570.1, but", "DriverLibraryMismatch", "host", "none"),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "NvswitchFatal",
        "nvswitch/0000:86:00",
        "replace",
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, egress error (First)",
        "NvswitchNoted",
        "nvswitch/0000:05:00",
        "none",
    ),
    ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Odd", "NvswitchUnknown", "nvswitch/0000:05:00", "support"),
    ("INFO: task nvidia-smi:12345 blocked for more than 120 seconds.", "DriverTaskHung", "host", "reboot"),
    (
        "python3[71]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2.20[7f00+1000]",
        "ApplicationCrash",
        "host",
        "restartWorkload",
    ),
    (
        "efa 0000:4f:00.0: The device didn't send any completion for admin cmd CREATE_QP(1) status 0 (id 7)",
        "EfaAdminQueueDead",
        "nic/rdmap79s0",
        "replace",
    ),
    ("efa 0000:50:00.0: EFA device init failed", "EfaInitFailed", "nic/pci-0000:50:00.0", "replace"),
    (
        "infiniband efa_0: Failed to process command ALLOC_PD (opcode 14) comp_status 1 err -12",
        "EfaResources",
        "nic/efa_0",
        "restartWorkload",
    ),
    (
        "mlx5_core 0000:18:00.0: poll_health:800: device's health compromised - reached miss count",
        "NicHealthCompromised",
        "nic/pci-0000:18:00.0",
        "replace",
    ),
]


@pytest.mark.parametrize(("line", "fault", "component", "recovery"), LINES)
def test_a_line_is_read_for_what_it_says(line: str, fault: str, component: str | None, recovery: str) -> None:
    (seen,) = read(line)
    assert (seen.fault, seen.recovery.value) == (fault, recovery)
    assert component is None or seen.component == component


@pytest.mark.parametrize(
    "line",
    [
        "Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.",
        "python3: NVRM: Xid (PCI:0000:b3:00): 79",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Data {0x50610002, 0x10100030}",
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: knvlinkUpdatePostRxDetLinkMask_IMPL: Failed to update Rx Detect Link mask!",
        "infiniband efa_0: IB device registered",
        "efa 0000:4f:00.0: Setup irq:1861 name:efa-mgmnt@pci:0000:4f:00.0",
        "INFO: task postgres:12345 blocked for more than 120 seconds.",
        "NVRM: Xid (PCI:[4711]: segfault at 0 ip 0 sp 0 error 4 in libc.so",
        "NVRM: Xid (PCI: page allocation failure: order:4",
        "NVRM: Xid x invoked oom-killer: gfp_mask=0x140cca",
        "NVRM: GPU Board Serial Number: 0000000000000",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.133.20",
    ],
)
def test_a_line_that_says_nothing_bad_of_the_hardware_is_no_observation(line: str) -> None:
    assert read(line) == []


@pytest.mark.parametrize("line", ["NVRM: Xid", "NVRM: Xid (PCI:0000:zz:00): 79, x", "NVRM: Xid (PCI:0000:b3:00): 79x"])
def test_an_xid_line_that_cannot_be_read_is_unknown_and_not_nothing(line: str) -> None:
    (seen,) = read(line)
    assert (seen.fault, seen.verdict, seen.recovery) == ("GpuUnknownXid", Verdict.UNKNOWN, Recovery.SUPPORT)


@pytest.mark.parametrize(
    ("to", "fault", "recovery"),
    [
        ("0x1 (GPU Reset Required)", "GpuRecoveryActionReset", "resetGpu"),
        ("0x2 (Node Reboot Required)", "GpuRecoveryActionReboot", "reboot"),
        ("0x3 (Drain P2P)", "GpuRecoveryActionDrainP2P", "resetGpu"),
        ("0x4 (Drain and Reset)", "GpuRecoveryActionDrainAndReset", "resetGpu"),
        ("0x5 (Recover IMEX Domain)", "GpuRecoveryActionRecoverImex", "reboot"),
        ("0x0 (None)", "GpuRecoveryActionNone", "none"),
        ("0x9 (Say A Prayer)", "GpuRecoveryActionUnknown", "support"),
        ("0x2 ()", "GpuRecoveryActionReboot", "reboot"),
    ],
)
def test_154_is_read_from_what_it_changed_to(to: str, fault: str, recovery: str) -> None:
    (seen,) = read(xid(154, f", pid=9, name=x, GPU recovery action changed from 0x0 (None) to {to}"))
    assert (seen.fault, seen.recovery.value) == (fault, recovery)


def test_a_mig_instance_is_part_of_its_gpu() -> None:
    (instance,) = read("NVRM: Xid (PCI:0000:b3:00 GPU-I:02): 31, pid=1, name=a, MMU Fault")
    (compute,) = read("NVRM: Xid (PCI:0000:b3:00 GPU-I:02 GPU-CI:00): 31, pid=1, name=a, MMU Fault")
    assert (instance.component, instance.unit) == ("gpu/GPU-b3", "GI 2")
    assert compute.unit == "GI 2, CI 0"


def test_a_graphics_exception_names_its_unit() -> None:
    (seen,) = read(xid(13, ", pid=1, name=a, Graphics SM Warp Exception on (GPC 7, TPC 3, SM 0): Out Of Range"))
    assert seen.unit == "GPC 7, TPC 3"


def test_three_records_without_an_xid_are_one_bus_loss_though_others_come_between() -> None:
    (seen,) = read(
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "usb 1-1: new device",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert (seen.fault, seen.component, seen.recovery) == ("GpuFallenOffBus", "gpu/GPU-b3", Recovery.REBOOT)


def test_three_lines_in_one_record_are_one_bus_loss() -> None:
    (seen,) = read(
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.\n"
    )
    assert seen.component == "gpu/GPU-b3"


def test_an_old_first_record_is_not_joined_with_a_later_loss() -> None:
    lines = [
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        *["x"] * 20,
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    (seen,) = read(*lines)
    assert seen.component == "host"


def test_one_sxid_event_of_three_lines_is_one_observation() -> None:
    head = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, "
    assert len(read(f"{head}Fatal, Link 32 egress", f"{head}Severity 1 Engine instance 32", f"{head}Data {{0x5}}")) == 1


def test_the_stuck_link_mask_counts_when_it_comes_every_few_seconds_only() -> None:
    line = "NVRM: knvlinkUpdatePostRxDetLinkMask_IMPL: Failed to update Rx Detect Link mask!"
    reader = KernelLogReader()
    assert [len(reader.read(line, at)) for at in (0.0, 4.0, 8.0, 500.0, 1000.0)] == [0, 0, 1, 0, 0]
    (seen,) = reader.read(line, 1004.0) + reader.read(line, 1008.0)
    assert (seen.fault, seen.recovery) == ("NvlinkMaskStuck", Recovery.REBOOT)


def test_the_log_itself_teaches_which_gpu_is_at_an_address() -> None:
    uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    (seen,) = read(f"NVRM: GPU at PCI:0000:91:00: {uuid}", xid(79, pci="0000:91:00"))
    assert seen.component == f"gpu/{uuid}"


# --- records -----------------------------------------------------------------------------------------------------


def feed(reader: KernelLogReader, *raws: bytes) -> list[Observation]:
    records = [parse_record(raw) for raw in raws]
    return [seen for record in records if record is not None for seen in reader.feed(record)]


def test_a_record_is_read_with_its_escapes_and_properties() -> None:
    record = parse_record(
        b"3,1234,987654321,-,caller=T7;NVRM: a\\x0ab \\xc3\\xa9\n SUBSYSTEM=pci\n DEVICE=+pci:0000:b3:00.0\n"
    )
    assert record is not None
    assert (record.level, record.facility, record.sequence, record.usec) == (3, 0, 1234, 987654321)
    assert record.text == "NVRM: a\nb é"
    assert record.properties == (("SUBSYSTEM", "pci"), ("DEVICE", "+pci:0000:b3:00.0"))


@pytest.mark.parametrize("raw", [b"", b"hello", b"3,x,1,-;a", b"-3,1,1,-;a", b"3,1,1,-a", b"\xff\xfe"])
def test_bytes_of_another_form_are_no_record(raw: bytes) -> None:
    assert parse_record(raw) is None


def test_what_user_space_wrote_does_not_count_whatever_it_says() -> None:
    line = b"NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus."
    reader = KernelLogReader()
    assert feed(reader, b"11,0,5,-;" + line, b"14,1,5,-;" + line) == []
    (seen,) = feed(reader, b"3,2,5000000,-;" + line)
    assert seen.at == 5.0


def test_missing_records_are_said_and_so_is_a_log_that_does_not_begin_at_its_beginning() -> None:
    seen = feed(KernelLogReader(), b"6,40,1,-;a", b"6,41,2,-;b", b"6,45,3,-;c")
    assert [one.fault for one in seen] == ["KernelLogGap", "KernelLogGap"]
    assert seen[1].evidence == "records 42 to 44 of the kernel log are missing"
    assert feed(KernelLogReader(last_sequence=39), b"6,40,1,-;a", b"12,41,2,-;b", b"6,42,3,-;c") == []


def test_a_program_cannot_forge_a_second_line_through_a_newline_in_its_name() -> None:
    seen = feed(
        KernelLogReader(), b"3,0,5,-;NVRM: Xid (PCI:0000:b3:00): 43, pid=1, name=x\\x0aNVRM: Xid z, Ch 00000008"
    )
    assert [one.xid for one in seen] == [43]


def test_evidence_is_bounded_and_printable() -> None:
    (seen,) = read(xid(43, ", pid=1, name=\x1b[2J\u202e, " + "x" * 5000))
    assert len(seen.evidence) <= LIMIT
    assert seen.evidence.isprintable()


# --- printed forms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[ 1843.308145] ",
        "[    0.000000] ",
        "[Fri Jan 24 10:34:54 2025] ",
        "kern  :err   : 2025-01-25T10:34:54,859532+00:00 ",
        "2025-01-25T10:34:54,859532+00:00 ",
        "Jun 12 16:31:50 host kernel: ",
        "Jun  2 16:31:50 host kernel: [  12.345678] ",
        "2026-05-11T10:35:49.123456+05:30 host kernel: [16450076.435595] ",
        "3,1234,987654321,-;",
        "kern  :err   : [ 1843.308145] ",
    ],
)
def test_a_printed_prefix_is_taken_off(prefix: str) -> None:
    line = strip_prefix(f"{prefix}{xid(79)}\n")
    assert line.text == xid(79)
    assert line.from_kernel


@pytest.mark.parametrize(
    "prefix",
    [
        "user  :err   : 2025-01-25T10:34:54,859532+00:00 ",
        "Jun 12 16:31:50 host app[12]: ",
        "12,5,6,-;",
        "Jun 12 16:31:50 host kernel[5]: ",
    ],
)
def test_a_printed_line_that_says_who_wrote_it_is_believed(prefix: str) -> None:
    assert not strip_prefix(f"{prefix}{xid(79)}").from_kernel


# --- hostile input -----------------------------------------------------------------------------------------------


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    reader = KernelLogReader()
    for line in (text, f"NVRM: {text}", f"NVRM: Xid {text}", f"NVRM: Xid (PCI:0000:b3:00): {text}"):
        reader.read(line, 1.0)
        strip_prefix(line)


@given(st.binary(max_size=300))
def test_no_bytes_make_the_record_reader_fail(raw: bytes) -> None:
    parse_record(raw)
    parse_record(b"3,1,1,-;" + raw)


@given(st.text(min_size=1, max_size=15), st.integers(1, 176))
def test_a_process_name_never_changes_the_number_or_names_a_cause(name: str, number: int) -> None:
    event = parse(f"NVRM: Xid (PCI:0000:b3:00): {number}, pid=12, name={name}, Ch 00000008")
    assert isinstance(event, XidLine)
    assert (event.xid, event.pid, event.caused_by) == (number, 12, None)


@given(st.text(max_size=200))
def test_garbage_after_the_drivers_prefix_is_never_better_than_unknown(tail: str) -> None:
    for seen in KernelLogReader().read(f"NVRM: Xid (PCI:{tail}", 1.0):
        if seen.xid is None and seen.fault != "ApplicationCrash":
            assert seen.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "seed",
    ["NVRM: ", "NVRM: GPU", "NVRM: Xid (PCI:0000:b3:00): 149, ", "a[1]: segfault at ", "mlx5_core 0000:18:00.0: "],
)
@pytest.mark.parametrize("filler", ["A", "AAA ", " ", "link ", "GPU ", "in libnccl", "\n", "[NV_ERR_", "0x1 ("])
def test_reading_takes_time_in_proportion_to_a_bounded_text(seed: str, filler: str) -> None:
    parse.cache_clear()
    line = seed + filler * 100_000
    start = time.perf_counter()
    parse(line)
    strip_prefix(line)
    assert time.perf_counter() - start < 0.5
