import os
import subprocess

import pytest

from fleetwell.lab.faults import inject
from fleetwell.lab.hardware import Hardware
from fleetwell.probes.nvidia_smi_reading import Asked, read


def smi(hardware: Hardware, *arguments: str) -> tuple[int, str]:
    """Run the node's tool as an agent would: by its path, with nothing but an ordinary environment."""
    done = subprocess.run(
        [str(hardware.nvidia_smi), *arguments],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_it_lists_the_gpus(small: Hardware) -> None:
    code, text = smi(small, "-L")
    assert code == 0
    assert text.splitlines() == [f"GPU {n}: NVIDIA L40S (UUID: {gpu.uuid})" for n, gpu in enumerate(small.state.gpus)]


def test_a_query_gives_csv(small: Hardware) -> None:
    code, text = smi(small, "--query-gpu=index,pci.bus_id,memory.total,gpu_recovery_action", "--format=csv", "-i", "1")
    assert (code, text) == (
        0,
        "index, pci.bus_id, memory.total [MiB], gpu_recovery_action\n1, 00000000:3A:00.0, 46068 MiB, None\n",
    )


def test_a_query_can_do_without_header_and_units(small: Hardware) -> None:
    inject(small, "ecc-dbe", 1)
    code, text = smi(
        small,
        "--query-gpu=index,gpu_recovery_action,ecc.errors.uncorrected.volatile.total,mig.mode.current,power.draw",
        "--format=csv,noheader,nounits",
    )
    assert code == 0
    assert text.splitlines()[:2] == ["0, None, 0, [N/A], 35.00", "1, Reset, 1, [N/A], 35.00"]


def test_remapped_rows_and_processes_have_queries_of_their_own(small: Hardware) -> None:
    inject(small, "row-remap-failed", 0)
    small.hold(2, os.getpid(), 512)
    rows = smi(small, "--query-remapped-rows=remapped_rows.pending,remapped_rows.failure", "--format=csv,noheader")
    apps = smi(small, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")

    assert rows == (0, "No, Yes\nNo, No\nNo, No\nNo, No\n")
    assert apps == (0, f"{os.getpid()}, 512\n")


@pytest.mark.parametrize("arguments", [(), ("-q",)])
def test_table_and_details_name_every_gpu(small: Hardware, arguments: tuple[str, ...]) -> None:
    code, text = smi(small, *arguments)
    assert code == 0
    assert all(f"00000000:{bus}:00.0" in text for bus in ("38", "3A", "3C", "3E"))


@pytest.mark.parametrize("arguments", [(), ("-q",)])
def test_table_and_details_are_read_as_whole_by_our_own_reader(small: Hardware, arguments: tuple[str, ...]) -> None:
    small.hold(2, os.getpid(), 512)
    code, text = smi(small, *arguments)
    well = read(text, Asked(code=code, expected=4, known={}, in_container=False, required=True))
    assert well.noted == set()
    inject(small, "ecc-dbe", 1)
    code, text = smi(small, *arguments)
    ill = read(text, Asked(code=code, expected=4, known={}, in_container=False, required=True))
    assert "GpuEccUncorrectable" in {fault for fault, _ in ill.noted}


def test_a_table_that_was_cut_is_not_whole(small: Hardware) -> None:
    code, text = smi(small)
    cut = read(text[: len(text) // 3], Asked(code=code, expected=4, known={}, in_container=False, required=True))
    assert cut.noted


def test_a_lost_gpu_is_named_and_the_others_are_answered(small: Hardware) -> None:
    inject(small, "gpu-lost", 1)
    code, text = smi(small, "-L")
    assert code == 15
    assert text.count("UUID") == 3
    assert (
        "Unable to determine the device handle for GPU1: 0000:3a:00.0: GPU is lost.  "
        "Reboot the system to recover this GPU" in text
    )


def test_no_gpu_at_all_is_said(small: Hardware) -> None:
    for index in range(4):
        inject(small, "gpu-missing", index)
    assert smi(small) == (6, "No devices were found\n")


def test_no_driver_and_a_wrong_driver_have_their_codes(small: Hardware) -> None:
    inject(small, "driver-unloaded")
    code, text = smi(small)
    assert code == 9
    assert text.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")

    inject(small, "clear")
    inject(small, "driver-mismatch")
    assert smi(small) == (18, "Failed to initialize NVML: Driver/library version mismatch\n\n")


def test_a_reset_heals_what_a_reset_heals(small: Hardware) -> None:
    inject(small, "row-remap-pending", 1)
    code, text = smi(small, "--gpu-reset", "-i", "1")
    assert (code, text) == (0, "GPU 00000000:3A:00.0 was successfully reset.\nAll done.\n")
    assert not small.state.gpus[1].volatile.rows_pending


def test_a_reset_is_refused_while_somebody_holds_the_gpu(small: Hardware) -> None:
    inject(small, "row-remap-pending", 1)
    small.hold(1, os.getpid())
    code, text = smi(small, "--gpu-reset", "-i", small.state.gpus[1].uuid)
    assert code == 255
    assert "GPU 00000000:3A:00.0: In use by another client" in text
    assert small.state.gpus[1].volatile.rows_pending


def test_a_lost_gpu_is_not_reset(small: Hardware) -> None:
    inject(small, "gpu-lost", 1)
    code, text = smi(small, "--gpu-reset", "-i", "1")
    assert code == 15
    assert "is lost" in text


def test_persistence_mode_can_be_set(small: Hardware) -> None:
    assert smi(small, "-pm", "0", "-i", "0")[0] == 0
    assert [gpu.lasting.persistence for gpu in small.state.gpus] == [False, True, True, True]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--query-gpu=colour", "--format=csv"), 'Field "colour" is not a valid field to query.'),
        (("--query-gpu=name",), '"--format=" switch is missing'),
        (("--dance",), "Invalid combination of input arguments"),
    ],
)
def test_a_wrong_question_is_refused(small: Hardware, arguments: tuple[str, ...], complaint: str) -> None:
    code, text = smi(small, *arguments)
    assert code == 2
    assert complaint in text
