import subprocess
import sys

import pytest

from fleetwell.lab import cuda
from fleetwell.lab.faults import inject
from fleetwell.lab.hardware import Hardware


@pytest.fixture
def rank(small: Hardware, monkeypatch: pytest.MonkeyPatch) -> Hardware:
    """This process is local rank 1 of a pod that got GPUs 2 and 3."""
    monkeypatch.setenv("FLEETWELL_NVML_STATE", str(small.state_file))
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", ",".join(gpu.uuid for gpu in small.state.gpus[2:]))
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(cuda, "_seen", None)
    return small


def test_outside_the_lab_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETWELL_NVML_STATE", raising=False)
    cuda.synchronize("GPU-whatever")


def test_a_lost_gpu_ends_the_rank_as_cuda_would(rank: Hardware) -> None:
    cuda.synchronize()
    inject(rank, "gpu-lost", 3)
    with pytest.raises(RuntimeError, match=r"^CUDA error: unspecified launch failure\n"):
        cuda.synchronize()


def test_another_ranks_gpu_is_not_this_ranks_business(rank: Hardware) -> None:
    inject(rank, "gpu-lost", 2)
    cuda.synchronize()
    with pytest.raises(RuntimeError, match="launch failure"):
        cuda.synchronize(rank.state.gpus[2].uuid)


def test_devices_can_be_named_by_index(rank: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "0,3")
    inject(rank, "gpu-lost", 3)
    with pytest.raises(RuntimeError, match="launch failure"):
        cuda.synchronize()


def test_a_rank_without_a_gpu_computes_on(rank: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(rank, "gpu-lost", 3)
    monkeypatch.setenv("LOCAL_RANK", "5")
    cuda.synchronize()


def test_a_failed_row_remap_lets_the_job_run(rank: Hardware) -> None:
    inject(rank, "row-remap-failed", 3)
    cuda.synchronize()


def test_a_contained_error_ends_who_was_there_and_spares_who_comes_later(rank: Hardware) -> None:
    inject(rank, "ecc-contained", 3)
    with pytest.raises(RuntimeError, match="uncorrectable ECC error"):
        cuda.synchronize()
    later = "from fleetwell.lab import cuda; cuda.synchronize()"
    subprocess.run([sys.executable, "-c", later], check=True, timeout=20)


def test_after_the_reboot_the_gpu_computes_again(rank: Hardware) -> None:
    inject(rank, "gpu-lost", 3)
    rank.reboot()
    cuda.synchronize()
