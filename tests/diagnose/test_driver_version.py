import pytest

from fleetwell.diagnose.driver_version import branch, find


@pytest.mark.parametrize(
    "text",
    [
        "Driver Version                            : 570.133.20",
        "| NVIDIA-SMI 570.133.20             Driver Version: 570.133.20     CUDA Version: 12.8     |",
        "<driver_version>570.133.20</driver_version>",
        "| Driver Version Detected   | 570.133.20                                     |",
        '"Driver Version Detected": "570.133.20"',
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Mon Jun  2 13:13:04 UTC 2025",
    ],
)
def test_the_version_is_found_wherever_it_stands(text: str) -> None:
    assert find(text) == "570.133.20"


def test_no_version_is_empty() -> None:
    assert not find("CUDA Version: 12.8")
    assert branch("570.133.20") == 570
    assert branch("latest") is None
