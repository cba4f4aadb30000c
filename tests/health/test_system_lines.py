"""What the kernel says about the machine around the GPUs, and what sounds like it and is harmless."""

import pytest

from fleetwell.health.catalogue import CATALOGUE, fault
from fleetwell.health.driver_line import NVRM_WORDS
from fleetwell.health.kernel_log import KernelLogReader, parse
from fleetwell.health.line_marks import may_matter
from fleetwell.health.line_rates import RATES
from fleetwell.health.vocabulary import Observation, Recovery, Verdict

GPUS = {"0000:17:00.0": "GPU-17"}
NICS = {"0000:18:00.0": "mlx5_0", "0000:4f:00.0": "rdmap79s0"}


def read(*lines: str, apart: float = 1.0) -> list[Observation]:
    reader = KernelLogReader(gpus=GPUS, nics=NICS)
    return [seen for number, line in enumerate(lines) for seen in reader.read(line, number * apart)]


NCCL = "7f7c4a000000+1200000"
BAD = [
    (
        "nvidia 0000:17:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "PcieFatalError",
        "gpu/GPU-17",
    ),
    (
        "nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible",
        "PcieFatalError",
        "gpu/GPU-17",
    ),
    ("nvidia 0000:17:00.0: AER: device recovery failed", "PcieFatalError", "gpu/GPU-17"),
    ("nvidia 0000:17:00.0: AER: can't recover (no error_detected callback)", "PcieFatalError", "gpu/GPU-17"),
    (
        "mlx5_core 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer",
        "NicPcieFatal",
        "nic/mlx5_0",
    ),
    ("efa 0000:4f:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=x", "NicPcieFatal", "nic/rdmap79s0"),
    (
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)",
        "HostMemoryUncorrectable",
        "host",
    ),
    (
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000010091",
        "HostMemoryUncorrectable",
        "host",
    ),
    ("mce: Uncorrected hardware memory error in user-access at 3f9b2d400", "HostMemoryUncorrectable", "host"),
    ("[Hardware Error]: Uncorrected, software containable error.", "HostMemoryUncorrectable", "host"),
    ("{1}[Hardware Error]: event severity: fatal", "HostMemoryUncorrectable", "host"),
    ("nvme nvme1: Removing after probe failure status: -19", "StorageGone", "host"),
    ("nvme nvme1: Disabling device after reset failure: -19", "StorageGone", "host"),
    ("md/raid1:md0: Disk failure on nvme1n1, disabling device.", "StorageGone", "host"),
    ("EXT4-fs (nvme0n1p1): Remounting filesystem read-only", "StorageReadOnly", "host"),
    ("XFS (nvme1n1): Filesystem has been shut down due to log error (0x2).", "StorageReadOnly", "host"),
    ("XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem", "StorageReadOnly", "host"),
    ("BTRFS info (device nvme0n1p1): forced readonly", "StorageReadOnly", "host"),
    ("Aborting journal on device nvme0n1p1-8.", "StorageReadOnly", "host"),
    (
        "mlx5_core 0000:18:00.0: wait_func:1195: ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
        "NicCommandTimeout",
        "nic/mlx5_0",
    ),
    (
        "mlx5_core 0000:18:00.0: health_care:153:(pid 9): unrecoverable hardware error",
        "NicHealthCompromised",
        "nic/mlx5_0",
    ),
    (
        "mlx5_core 0000:18:00.0: Port module event[error]: module 0, Cable error, High Temperature",
        "NicOverheating",
        "nic/mlx5_0",
    ),
    (
        "efa 0000:4f:00.0: The device sent a completion but the driver didn't receive any MSI-X interrupt",
        "EfaAdminQueueDead",
        "nic/rdmap79s0",
    ),
    ("efa 0000:4f:00.0: Reset indication didn't turn off", "EfaInitFailed", "nic/rdmap79s0"),
    ("infiniband rdmap79s0: Admin queue is closed", "EfaAdminQueueDead", "nic/rdmap79s0"),
    ("NVRM: GPU 0000:17:00.0: RmInitAdapter: Cannot initialize GSP firmware RM", "GpuInitFailed", "gpu/GPU-17"),
    ("NVRM: GPU at PCI:0000:17:00: GSP RM heartbeat timed out", "GpuGspTimeout", "gpu/GPU-17"),
    (
        "nvidia 0000:17:00.0: Unable to change power state from D3cold to D0, device inaccessible",
        "GpuFallenOffBus",
        "gpu/GPU-17",
    ),
    (
        "nvidia 0000:17:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
        "GpuFallenOffBus",
        "gpu/GPU-17",
    ),
    (
        "mlx5_core 0000:18:00.0: Unable to change power state from D3hot to D0, device inaccessible",
        "NicPcieFatal",
        "nic/mlx5_0",
    ),
    (
        "mlx5_core 0000:18:00.0: temp_warn:193:(pid 0): High temperature on sensors with bit set 0 1",
        "NicOverheating",
        "nic/mlx5_0",
    ),
    ("Memory failure: 0x3f9b2d: recovery action for dirty LRU page: Recovered", "HostMemoryUncorrectable", "host"),
    ("Memory failure: 0x3f9b2d: Killing python3:4242 due to hardware memory", "HostMemoryUncorrectable", "host"),
    (
        "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        "GpuRecoveryActionReboot",
        "host",
    ),
    (
        "NVRM: GPU0 nvAssertFailedNoLog: rpcSendMessage failed with status 0x0000000f for fn 78!",
        "GpuLost",
        "host",
    ),
    ("NVRM: None of the NVIDIA devices were initialized.", "GpuInitFailed", "host"),
]
NOT_THE_MACHINE = [
    ("Memory cgroup out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB", "ApplicationOutOfMemory"),
    ("Out of memory: Killed process 4242 (pt_main_thread) total-vm:1kB", "ApplicationOutOfMemory"),
    (
        "Memory cgroup out of memory: Kill process 4242 (ray::Worker) score 1000 or sacrifice child",
        "ApplicationOutOfMemory",
    ),
    (
        f"python3[71]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2.20[{NCCL}] likely on CPU 3",
        "ApplicationCrash",
    ),
    (f"traps: python3[71] general protection fault ip:7f sp:7f error:0 in libnccl.so.2[{NCCL}]", "ApplicationCrash"),
    (
        "mlx5_core 0000:18:00.0: mlx5_pcie_event:299:(pid 9): Detected insufficient power on the PCIe slot (27W).",
        "NicPowerLimited",
    ),
    ("mlx5_core 0000:18:00.0: Port module event: module 1, Cable unplugged", "NicLinkNoted"),
    ("mlx5_core 0000:18:00.0 eth2: Link down", "NicLinkNoted"),
    ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "PcieErrorsNoted"),
    (
        "nvidia 0000:17:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
        "PcieErrorsNoted",
    ),
    ("nvme nvme1: I/O 123 QID 4 timeout, aborting", "StorageNoted"),
    ("I/O error, dev nvme1n1, sector 1234 op 0x0:(READ) flags 0x0 phys_seg 1", "StorageNoted"),
    ("NETDEV WATCHDOG: eth2 (mlx5_core): transmit queue 5 timed out", "NicLinkNoted"),
]
NOTHING = [
    "nouveau 0000:17:00.0: Unable to change power state from D3cold to D0, device inaccessible",
    "nvidia 0000:17:00.0: enabling device (0140 -> 0142)",
    "Memory failure: 0x3f9b2d: not a page",
    "NVRM: GPU0 _kgspRpc: rpcSendMessage failed with status 0x00000065 for fn 78!",
    "mlx5_core 0000:18:00.0: firmware version: 28.39.1002",
    "BUG: unable to handle page fault for address: ffffb1",
    "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP NOPTI",
    "RIP: 0010:_nv011242rm+0x4d/0xd0 [nvidia]",
    "nvidia 0000:17:00.0:   device [10de:2330] error status/mask=00000001/00002000",
    "nvidia 0000:17:00.0: AER: device recovery successful",
    "pcieport 0000:16:01.0: AER: Corrected error received: 0000:17:00.0",
    "xhci_hcd 0000:00:14.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x",
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0",
    "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 8c00004000010091",
    "mce: [Hardware Error]: Machine check events logged",
    "[Hardware Error]: Corrected error, no action required.",
    "{1}[Hardware Error]: event severity: corrected",
    "Memory cgroup out of memory: Killed process 4242 (postgres) total-vm:1kB",
    "Memory cgroup out of memory: Killed process 4242 (x) python) total-vm:1kB",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3,pid=1,uid=0",
    "I/O error, dev loop0, sector 0 op 0x0:(READ)",
    "I/O error, dev sr0, sector 0 op 0x0:(READ)",
    "EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode",
    "nvme nvme1: 16/0/0 default/read/poll queues",
    "mlx5_core 0000:18:00.0: mlx5_cmd_out_err:816: ACCESS_REG(0x805) op_mod(0x1) failed, bad parameter(0x3)",
    "mlx5_core 0000:18:00.0 eth2: Link up",
    "cali123: Link is Down",
    "python3[71]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6[7f+1]",
    "infiniband efa_0: IB device registered",
    "efa 0000:4f:00.0: Setup irq:1861 name:efa-mgmnt@pci:0000:4f:00.0",
    "INFO: task jbd2/dm-0-8:12 blocked for more than 120 seconds.",
    " nvidia_ioctl+0x11d/0x160 [nvidia]",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [postgres:1234]",
]


@pytest.mark.parametrize(("line", "name", "component"), BAD)
def test_a_line_that_says_that_the_machine_is_not_well_is_bad(line: str, name: str, component: str) -> None:
    (seen,) = read(line)
    assert (seen.fault, seen.component, seen.verdict) == (name, component, Verdict.BAD)
    assert seen.recovery.rank >= Recovery.RESET_GPU.rank


@pytest.mark.parametrize(("line", "name"), NOT_THE_MACHINE)
def test_what_is_no_fault_of_the_machine_is_never_bad(line: str, name: str) -> None:
    (seen,) = read(line)
    assert (seen.fault, seen.verdict.severity <= Verdict.CONFIG.severity) == (name, True)
    assert seen.recovery.rank <= Recovery.RESTART_WORKLOAD.rank


@pytest.mark.parametrize("line", NOTHING)
def test_a_harmless_line_says_nothing(line: str) -> None:
    assert read(line) == []


@pytest.mark.parametrize(
    ("line", "name", "count", "apart"),
    [
        ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", "PcieErrorRate", 60, 5.0),
        (
            "nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=x",
            "PcieErrorsUncorrected",
            3,
            60.0,
        ),
        ("mlx5_core 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=x", "NicPcieErrors", 60, 5.0),
        ("mlx5_core 0000:18:00.0 eth2: Link down", "NicLinkFlapping", 3, 3600.0),
        ("bond0: (slave eth0): link status definitely down, disabling slave", "NicLinkFlapping", 3, 3600.0),
        ("ice 0000:18:00.0 eth2: NIC Link is Down", "NicLinkFlapping", 3, 3600.0),
        (
            "mlx5_core 0000:18:00.0 eth2: NETDEV WATCHDOG: CPU: 3: transmit queue 5 timed out 5000 ms",
            "NicTransmitStuck",
            3,
            600.0,
        ),
        (
            "nvme nvme1: I/O tag 123 (007b) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0) size:4096",
            "StorageTimeouts",
            3,
            100.0,
        ),
        ("blk_update_request: I/O error, dev nvme1n1, sector 1234 op 0x1:(WRITE)", "StorageErrors", 3, 100.0),
    ],
)
def test_what_says_something_by_its_rate_is_bad_at_that_rate_only(
    line: str, name: str, count: int, apart: float
) -> None:
    *before, last = read(*[line] * count, apart=apart)
    assert {one.fault for one in before} == {RATES[name].below}
    assert (last.fault, last.verdict) == (name, Verdict.BAD)
    seldom = read(*[line] * (count + 5), apart=RATES[name].seconds)
    assert {one.fault for one in seldom} == {RATES[name].below}


def test_a_cable_that_was_there_and_is_gone_is_bad() -> None:
    module = "mlx5_core 0000:18:00.0: Port module event: module 0, Cable "
    (seen,) = read(module + "plugged", module + "unplugged")
    assert (seen.fault, seen.verdict) == ("NicModuleUnplugged", Verdict.BAD)


def test_a_program_that_hangs_inside_the_driver_is_a_hung_task_of_the_driver() -> None:
    (seen,) = read(
        "INFO: task python3:12345 blocked for more than 120 seconds.",
        "      Tainted: P           OE",
        " rwsem_down_write_slowpath+0x2d0/0x5b0",
        " os_acquire_rwlock_write+0x35/0x40 [nvidia]",
        " _nv042330rm+0x10/0x40 [nvidia]",
        apart=0.01,
    )
    assert (seen.fault, seen.pid, seen.unit) == ("DriverTaskHung", 12345, "python3")
    assert "blocked for more than" in seen.evidence
    assert (
        read("INFO: task python3:1 blocked for more than 120 seconds.", " nvidia_open+0x1/0x2 [nvidia]", apart=60) == []
    )


TIMEOUT = "mlx5_core 0000:3b:00.0 eth0: TX timeout detected"
LOCKED = "BUG: soft lockup - CPU#12 stuck for 226906s! [ksoftirqd/12:75]"
INSTRUCTION = "RIP: 0010:mlx5e_poll_ico_cq+0x86/0x2a0 [mlx5_core]"
STACK = (" <IRQ>", " mlx5e_napi_poll+0x45/0x6b0 [mlx5_core]", " net_rx_action+0x142/0x390")


@pytest.mark.parametrize("begin", ["", "watchdog: ", "NMI watchdog: "])
def test_a_processor_that_stands_in_an_adapters_driver_is_bad(begin: str) -> None:
    (seen,) = read(begin + LOCKED, "Modules linked in: mlx5_ib mlx5_core nvidia(POE)", INSTRUCTION, *STACK, apart=0.01)
    assert (seen.fault, seen.component, seen.verdict) == ("NicTransmitStuck", "host", Verdict.BAD)
    assert "mlx5e_poll_ico_cq" in seen.evidence


@pytest.mark.parametrize(
    "head", [LOCKED, "INFO: task kworker/u64:3:811 blocked for more than 120 seconds.", "watchdog: " + LOCKED]
)
def test_what_is_stuck_in_an_adapters_driver_after_a_transmit_timeout_names_the_adapter(head: str) -> None:
    first, *others = read(TIMEOUT, head, "RIP: 0010:queued_spin_lock_slowpath+0x6c/0x1a0", *STACK, apart=0.01)
    assert (first.fault, first.verdict) == ("NicLinkNoted", Verdict.OK)
    assert [(one.fault, one.component, one.verdict) for one in others] == [
        ("NicTransmitStuck", "nic/pci-0000:3b:00.0", Verdict.BAD)
    ]


def test_an_adapters_driver_somewhere_on_a_stack_leaves_open_what_is_wrong() -> None:
    (seen,) = read(LOCKED, "RIP: 0010:ipt_do_table+0x1b0/0x640", *STACK, apart=0.01)
    assert (seen.fault, seen.component, seen.verdict) == ("NicDriverTaskHung", "host", Verdict.UNKNOWN)
    assert read(LOCKED, "RIP: 0010:ipt_do_table+0x1b0/0x640", " ? mlx5e_napi_poll+0x1/0x2 [mlx5_core]") == []
    assert read(INSTRUCTION, *STACK, apart=0.01) == []
    assert read(LOCKED, INSTRUCTION, apart=60) == []


def test_a_task_of_an_adapters_driver_that_hangs_is_judged_by_whether_the_adapter_sends() -> None:
    hung = "INFO: task kworker/u64:1+mlx5:811 blocked for more than 120 seconds."
    assert [one.fault for one in read(hung)] == ["NicDriverTaskHung"]
    assert [one.fault for one in read(TIMEOUT, hung)] == ["NicLinkNoted", "NicTransmitStuck"]


OOPS = "BUG: unable to handle page fault for address: ffffb1e2c0a90008"


@pytest.mark.parametrize(
    "head",
    [
        OOPS,
        "BUG: kernel NULL pointer dereference, address: 0000000000000160",
        "BUG: unable to handle kernel NULL pointer dereference at 0000000000000160",
        "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP NOPTI",
        "general protection fault: 0000 [#1] SMP NOPTI",
        "kernel BUG at mm/slub.c:4321!",
        "Unable to handle kernel paging request at virtual address ffff800b",
        "Oops: 0000 [#1] SMP PTI",
    ],
)
@pytest.mark.parametrize(
    "frame",
    [
        "RIP: 0010:_nv011242rm+0x4d/0xd0 [nvidia]",
        "IP: [<ffffffffa1b2c3d4>] _nv011242rm+0x4d/0xd0 [nvidia]",
        "pc : uvm_va_block_find+0x4d/0xd0 [nvidia_uvm]",
        " rm_ioctl+0x63/0xb0 [nvidia]",
        " [<ffffffffa1b2c3d4>] rm_ioctl+0x63/0xb0 [nvidia]",
    ],
)
def test_a_kernel_that_stumbles_inside_the_gpus_driver_needs_a_reboot(head: str, frame: str) -> None:
    (seen,) = read(head, "CPU: 3 PID: 4242 Comm: python3 Tainted: P           OE", frame, apart=0.01)
    assert (seen.fault, seen.component, seen.verdict) == ("DriverCrashed", "host", Verdict.BAD)
    assert seen.recovery is Recovery.REBOOT
    assert head[:20] in seen.evidence
    assert frame.strip() in seen.evidence
    assert may_matter(head.encode())
    assert may_matter(frame.encode())


def test_a_kernel_that_stumbles_elsewhere_is_no_fault_of_the_gpus_driver() -> None:
    for place in ("amdgpu", "drbd", "mlx5_core", "lustre"):
        assert read(OOPS, f"RIP: 0010:some_call+0x4d/0xd0 [{place}]", " do_syscall_64+0x5b/0x80", apart=0.01) == []
    assert read(OOPS, "RIP: 0010:_nv011242rm+0x4d/0xd0 [nvidia]", apart=60) == []


def test_a_fabric_manager_of_another_version_is_a_matter_of_the_installation() -> None:
    (seen,) = read("nvidia-nvswitch: Version mismatch, kernel version 570.133.20 user version 570.124.06")
    assert (seen.fault, seen.verdict) == ("DriverLibraryMismatch", Verdict.CONFIG)


def test_a_gpu_that_the_driver_does_not_support_is_named_by_the_record_before() -> None:
    (seen,) = read(
        "NVRM: The NVIDIA GPU 0000:17:00.0 (PCI ID: 10de:1b06)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
        apart=0.01,
    )
    assert (seen.fault, seen.component, seen.verdict) == ("GpuUnsupported", "gpu/GPU-17", Verdict.CONFIG)
    assert seen.recovery is Recovery.NONE


@pytest.mark.parametrize(
    "line",
    [
        "e1000e: enp3s0 NIC Link is Down",
        "igb 0000:4f:00.1 enp79s0f1: igb: enp79s0f1 NIC Link is Down",
        "ixgbe 0000:4f:00.1: enp79s0f1: NIC Link is Down",
        "bnxt_en 0000:4f:00.1 enp79s0f1: NIC Link is Down",
    ],
)
def test_a_link_that_goes_down_is_noted_with_its_interface_in_old_words_too(line: str) -> None:
    (seen,) = read(line)
    assert (seen.fault, seen.verdict) == ("NicLinkNoted", Verdict.OK)
    assert may_matter(line.encode())


def test_bus_losses_of_two_gpus_are_told_apart_though_their_records_and_others_lie_between() -> None:
    loss = "NVRM: fallen off the bus and is not responding to commands."
    middle = "NVRM: (PCI ID: 10de:26b5) installed in this system has"
    noise = [f"mlx5_core 0000:18:00.0: other processor {number}" for number in range(40)]
    seen = read(
        "NVRM: The NVIDIA GPU 0000:17:00.0",
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        *noise,
        middle,
        middle,
        loss,
        *noise,
        loss,
        apart=0.01,
    )
    assert [one.component for one in seen] == ["gpu/GPU-17", "gpu/pci-0000:b3:00"]


def test_a_log_with_countless_addresses_names_no_more_components_than_a_machine_can_have() -> None:
    reader = KernelLogReader(gpus=GPUS)
    lines = [f"NVRM: Xid (PCI:{number:04x}:00:00): 79" for number in range(5000)]
    components = {seen.component for line in lines for seen in reader.read(line, 0.0)}
    assert len(components) < 80
    (known,) = reader.read("NVRM: Xid (PCI:0000:17:00): 79", 0.0)
    assert known.component == "gpu/GPU-17"


@pytest.mark.parametrize("line", [line for line, *_ in (*BAD, *NOT_THE_MACHINE)])
def test_every_line_that_is_understood_bears_a_mark(line: str) -> None:
    assert may_matter(line.encode())
    assert parse(line) is not None


def test_every_rate_is_of_a_fault_and_says_where_it_comes_from() -> None:
    for name, rate in RATES.items():
        assert fault(name).verdict is Verdict.BAD
        assert not rate.below or rate.below in CATALOGUE
        assert rate.source
        assert rate.count > 1


def test_the_drivers_words_are_in_no_harmless_line() -> None:
    assert all(word for word in NVRM_WORDS)
    assert not may_matter(b"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.133.20")
