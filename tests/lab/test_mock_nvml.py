"""The mock NVML through the real nvidia-ml-py, in a child process: what each piece of state comes out as."""

import os
import signal
import subprocess
import sys

import pytest

from fleetwell.lab.hardware import Hardware
from fleetwell.lab.nvml_state import CudaError, Holder, RecoveryAction, Where
from lab.nvml_child import Ask

GPU_IS_LOST = {"error": 15}
FIELD = "[(v.nvmlReturn, v.value.uiVal) for v in p.nvmlDeviceGetFieldValues(d[0], [{}])]"


def test_a_healthy_h100_node_reads_as_eight_whole_gpus(node: Hardware, ask: Ask) -> None:
    state = node.state
    answers = ask(
        node,
        "p.nvmlDeviceGetCount()",
        "[p.nvmlDeviceGetUUID(d[i]) for i in range(8)]",
        "[p.nvmlDeviceGetSerial(d[i]) for i in range(8)]",
        "p.nvmlDeviceGetName(d[7])",
        "p.nvmlSystemGetDriverVersion()",
        "p.nvmlSystemGetCudaDriverVersion()",
        "[p.nvmlDeviceGetRemappedRows(d[i]) for i in range(8)]",
        "p.nvmlDeviceGetTotalEccErrors(d[0], 1, 0)",
        "[p.nvmlDeviceGetNvLinkState(d[0], link) for link in range(18)]",
        FIELD.format("p.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
    )

    assert answers == [
        8,
        [gpu.uuid for gpu in state.gpus],
        [gpu.serial for gpu in state.gpus],
        "NVIDIA H100 80GB HBM3",
        "570.172.08",
        12080,
        [[0, 0, 0, 0]] * 8,
        0,
        [1] * 18,
        [[0, 0]],
    ]


def test_a_device_is_the_same_by_index_uuid_and_bus_id(node: Hardware, ask: Ask) -> None:
    uuid = node.state.gpus[3].uuid
    answers = ask(
        node,
        f"p.nvmlDeviceGetIndex(p.nvmlDeviceGetHandleByUUID({uuid!r}))",
        "p.nvmlDeviceGetIndex(p.nvmlDeviceGetHandleByPciBusId('00000000:86:00.0'))",
        "p.nvmlDeviceGetIndex(p.nvmlDeviceGetHandleByPciBusId('0000:86:00.0'))",
        "p.nvmlDeviceGetIndex(p.nvmlDeviceGetHandleByPciBusId('86:00.0'))",
        "p.nvmlDeviceGetPciInfo(d[3]).busId",
        "hex(p.nvmlDeviceGetPciInfo(d[3]).pciDeviceId)",
        "p.nvmlDeviceGetMinorNumber(d[3])",
    )

    assert answers == [3, 3, 3, 3, "00000000:86:00.0", "0x233010de", 3]


def test_the_versioned_structures_have_the_bindings_layout(node: Hardware, ask: Ask) -> None:
    fabric = "(lambda f: (p.nvmlDeviceGetGpuFabricInfoV(d[0], p.byref(f)), f.state, f.healthMask)[1:])(p.{}())"
    sram = "(lambda s: (p.nvmlDeviceGetSramEccErrorStatus(d[0], p.byref(s)), s.bThresholdExceeded)[1])(p.{}())"
    with node.update() as state:
        state.gpus[0].volatile.sram_threshold = True
        state.gpus[0].volatile.fabric_health = 0xA9
    answers = ask(
        node,
        "[p.nvmlDeviceGetMemoryInfo(d[0], version).total >> 20 for version in (None, p.nvmlMemory_v2)]",
        fabric.format("c_nvmlGpuFabricInfo_v2_t"),
        fabric.format("c_nvmlGpuFabricInfo_v3_t"),
        sram.format("c_nvmlEccSramErrorStatus_v1_t"),
        "p.nvmlDeviceGetTemperatureV(d[0], 0)",
        "p.nvmlDeviceGetRowRemapperHistogram(d[0]).max",
    )

    assert answers == [[81559, 81559], [3, 0xA9], [3, 0xA9], 1, 34, 640]


def test_each_error_state_comes_out_of_its_own_call(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        volatile, lasting = state.gpus[0].volatile, state.gpus[0].lasting
        volatile.ecc_corrected, volatile.ecc_uncorrected = 3, 2
        lasting.ecc_corrected, lasting.ecc_uncorrected = 30, 20
        lasting.rows_corrected, lasting.rows_uncorrected, lasting.rows_failed = 5, 6, True
        volatile.rows_pending = True
        volatile.recovery_action = RecoveryAction.DRAIN_AND_RESET
        volatile.links_down = {4}
        volatile.link_errors = {4: [1, 2, 3, 4, 5]}
        volatile.pcie_gen, volatile.pcie_width, volatile.pcie_replays = 1, 8, 99
        volatile.throttle = 0x80
        lasting.above_slowdown_c = 2
        lasting.persistence = False
    answers = ask(
        node,
        "[[p.nvmlDeviceGetTotalEccErrors(d[0], kind, counter) for kind in (0, 1)] for counter in (0, 1)]",
        "p.nvmlDeviceGetDetailedEccErrors(d[0], 1, 0).deviceMemory",
        "p.nvmlDeviceGetMemoryErrorCounter(d[0], 1, 1, p.NVML_MEMORY_LOCATION_DRAM)",
        "p.nvmlDeviceGetRemappedRows(d[0])",
        FIELD.format("142, 143, 144, 145, 230, (165, 4), (165, 5), 94"),
        "[p.nvmlDeviceGetNvLinkErrorCounter(d[0], 4, counter) for counter in range(5)]",
        "p.nvmlDeviceGetNvLinkState(d[0], 4)",
        "[p.nvmlDeviceGetCurrPcieLinkGeneration(d[0]), p.nvmlDeviceGetMaxPcieLinkGeneration(d[0])]",
        "[p.nvmlDeviceGetCurrPcieLinkWidth(d[0]), p.nvmlDeviceGetMaxPcieLinkWidth(d[0])]",
        "p.nvmlDeviceGetPcieReplayCounter(d[0])",
        "p.nvmlDeviceGetCurrentClocksEventReasons(d[0])",
        "[p.nvmlDeviceGetTemperature(d[0], 0), p.nvmlDeviceGetMarginTemperature(d[0])]",
        "p.nvmlDeviceGetPersistenceMode(d[0])",
    )

    assert answers == [
        [[3, 2], [30, 20]],
        2,
        20,
        [5, 6, 1, 1],
        [[0, 5], [0, 6], [0, 1], [0, 1], [0, 4], [0, 0], [0, 1], [0, 99]],
        [1, 2, 3, 4, 5],
        0,
        [1, 5],
        [8, 16],
        99,
        0x80 | 0x48,
        [89, -2],
        0,
    ]


def test_a_lost_gpu_is_counted_but_gives_no_handle(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.gpus[2].volatile.lost = True

    assert ask(node, "p.nvmlDeviceGetCount()", "sorted(d)") == [8, [0, 1, 3, 4, 5, 6, 7]]
    assert ask(node, "p.nvmlDeviceGetHandleByIndex(2)") == GPU_IS_LOST


def test_an_absent_gpu_leaves_no_gap(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.gpus[2].lasting.absent = True

    assert ask(node, "p.nvmlDeviceGetCount()", "p.nvmlDeviceGetUUID(d[2])") == [7, node.state.gpus[3].uuid]


def test_a_device_in_error_answers_every_call_with_it(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.gpus[1].volatile.error = 999

    assert ask(node, "p.nvmlDeviceGetHandleByIndex(1)") == {"error": 999}
    assert ask(node, "sorted(d)") == [0, 2, 3, 4, 5, 6, 7]


def test_a_driver_without_the_recovery_field_says_not_supported(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.gpus[0].volatile.recovery_action = RecoveryAction.UNKNOWN_TO_DRIVER

    assert ask(node, FIELD.format(230)) == [[3, 0]]


def test_row_remapping_cannot_be_asked_under_mig(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.gpus[0].lasting.mig = True

    assert ask(node, "p.nvmlDeviceGetMigMode(d[0])") == [1, 1]
    assert ask(node, "p.nvmlDeviceGetRemappedRows(d[0])") == {"error": 3}


def test_l40s_has_no_nvlink_fabric_or_mig(small: Hardware, ask: Ask) -> None:
    assert ask(small, "p.nvmlDeviceGetNvLinkState(d[0], 0)") == {"error": 2}
    assert ask(small, "p.nvmlDeviceGetMigMode(d[0])") == {"error": 3}
    assert ask(small, FIELD.format("91, (165, 0)")) == [[0, 0], [3, 0]]


def test_only_living_processes_hold_a_gpu(node: Hardware, ask: Ask) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with node.update() as state:
        state.gpus[0].volatile.holders = [Holder(os.getpid(), 2048), Holder(gone.pid, 512)]

    assert ask(
        node,
        "[(one.pid, one.usedGpuMemory >> 20) for one in p.nvmlDeviceGetComputeRunningProcesses(d[0])]",
        "p.nvmlDeviceGetMemoryInfo(d[0]).used >> 20",
        "p.nvmlDeviceGetComputeRunningProcesses(d[1])",
    ) == [[[os.getpid(), 2048]], 2048, []]


def test_the_count_can_lie(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.driver.count = 7

    assert ask(node, "p.nvmlDeviceGetCount()", "sorted(d)") == [7, [0, 1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("code", [9, 18, 999])
def test_initialisation_fails_as_the_state_says(node: Hardware, ask: Ask, code: int) -> None:
    with node.update() as state:
        state.driver.init_error = code

    assert ask(node, "0") == {"error": code}


@pytest.mark.parametrize("damage", ["device 0 colour red\nend\n", "count 3\n", "device 99 lost 1\nend\n", ""])
def test_a_state_that_is_not_understood_is_never_read_as_health(node: Hardware, ask: Ask, damage: str) -> None:
    node.state_file.write_text(damage, encoding="utf-8")

    assert ask(node, "p.nvmlDeviceGetCount()") == {"error": 999}


def test_without_a_state_file_there_is_no_driver(node: Hardware, ask: Ask) -> None:
    node.state_file.unlink()

    assert ask(node, "0") == {"error": 9}


def test_a_function_that_the_driver_lacks_is_function_not_found(node: Hardware, ask: Ask) -> None:
    assert ask(node, "p.nvmlDeviceGetEncoderCapacity(d[0], 0)") == {"error": 13}


def test_a_change_reaches_a_process_that_runs_already(node: Hardware) -> None:
    script = (
        "import pynvml as p, sys\n"
        "p.nvmlInit(); d = p.nvmlDeviceGetHandleByIndex(0)\n"
        "print(p.nvmlDeviceGetTemperature(d, 0), flush=True); sys.stdin.readline()\n"
        "try: print(p.nvmlDeviceGetTemperature(d, 0), flush=True)\n"
        "except p.NVMLError as error: print('error', error.value, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **node.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "34\n"

    with node.update() as state:
        state.gpus[0].volatile.lost = True

    answer, _ = child.communicate("go on\n", timeout=10)
    assert answer == "error 15\n"


def test_a_crash_aborts_the_caller(node: Hardware) -> None:
    with node.update() as state:
        state.driver.crash = Where.INIT
    done = subprocess.run(
        [sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"],
        env={**os.environ, **node.environment()},
        check=False,
        timeout=20,
    )

    assert done.returncode == -signal.SIGABRT


@pytest.mark.parametrize("where", [Where.INIT, Where.ANY])
def test_a_hang_never_answers_and_ends_with_the_process(node: Hardware, where: Where) -> None:
    with node.update() as state:
        state.driver.hang = where
    child = subprocess.Popen(
        [sys.executable, "-c", "import pynvml as p; print('called', flush=True); p.nvmlInit(); print('answered')"],
        env={**os.environ, **node.environment()},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "called\n"
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)  # it must still be waiting: the time is what is tested
    child.kill()

    assert child.communicate(timeout=10)[0] == ""


def test_a_cuda_error_is_no_business_of_nvml(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.gpus[0].volatile.cuda_error = CudaError(719)

    assert ask(node, "p.nvmlDeviceGetCount()") == 8
