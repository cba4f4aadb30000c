"""Where the driver's files are found, and how its programs are run from the agent's own image."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetwell.probes import driver

HOSTS = {
    "the host itself": ("usr/lib/x86_64-linux-gnu", "usr/bin"),
    "the host itself, Red Hat": ("usr/lib64", "usr/bin"),
    "the host itself, arm64": ("usr/lib/aarch64-linux-gnu", "usr/bin"),
    "GPU operator": ("run/nvidia/driver/usr/lib/x86_64-linux-gnu", "run/nvidia/driver/usr/bin"),
    "GPU operator, Red Hat": ("run/nvidia/driver/usr/lib64", "run/nvidia/driver/usr/bin"),
    "GKE": ("home/kubernetes/bin/nvidia/lib64", "home/kubernetes/bin/nvidia/bin"),
    "Bottlerocket": (
        "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib",
        "x86_64-bottlerocket-linux-gnu/sys-root/usr/bin",
    ),
    "Bottlerocket, arm64": (
        "aarch64-bottlerocket-linux-gnu/sys-root/usr/lib",
        "aarch64-bottlerocket-linux-gnu/sys-root/usr/bin",
    ),
    "Bottlerocket, by driver": (
        "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
        "x86_64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin",
    ),
}


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(("libraries", "programs"), HOSTS.values(), ids=HOSTS)
def test_library_and_programs_are_found_in_every_drivers_root(tmp_path: Path, libraries: str, programs: str) -> None:
    assert driver.library(tmp_path) is None
    assert driver.command(tmp_path, "nvidia-smi") is None
    library = put(tmp_path / libraries / driver.LIBRARY)
    tool = put(tmp_path / programs / "nvidia-smi")
    assert driver.library(tmp_path) == library
    assert driver.program(tmp_path, "nvidia-smi") == tool


def test_the_hosts_own_driver_comes_before_the_operators(tmp_path: Path) -> None:
    put(tmp_path / "run/nvidia/driver/usr/lib64" / driver.LIBRARY)
    own = put(tmp_path / "usr/lib64" / driver.LIBRARY)
    assert driver.library(tmp_path) == own


def test_an_absolute_link_leads_to_a_file_of_the_host_and_not_of_our_image(tmp_path: Path) -> None:
    real = put(tmp_path / "usr/lib/nvidia/current/libnvidia-ml.so.570.1")
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "alternative.so").symlink_to("/usr/lib/nvidia/current/libnvidia-ml.so.570.1")
    (folder / driver.LIBRARY).symlink_to("alternative.so")
    assert driver.library(tmp_path) == real


def test_a_link_that_leads_nowhere_or_round_is_no_library(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / driver.LIBRARY).symlink_to(driver.LIBRARY)
    (folder / "libcuda.so.1").symlink_to("/gone/libcuda.so")
    assert driver.library(tmp_path) is None
    assert driver.cuda(tmp_path) is None


@pytest.mark.parametrize("root", ["", "run/nvidia/driver"])
def test_a_tool_of_a_whole_other_system_is_run_inside_of_it(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    put(tmp_path / root / "usr/bin/nvidia-smi")
    put(tmp_path / root / "usr/lib64" / driver.LIBRARY)
    put(tmp_path / root / driver.LOADERS[0])
    found = driver.command(tmp_path, "nvidia-smi")
    assert found is not None
    assert found[0] == ["chroot", str(tmp_path / root), "/usr/bin/nvidia-smi"]
    assert "LD_LIBRARY_PATH" not in found[1]


def test_a_tool_that_lies_alone_gets_the_library_beside_it(tmp_path: Path) -> None:
    tool = put(tmp_path / "home/kubernetes/bin/nvidia/bin/nvidia-smi")
    library = put(tmp_path / "home/kubernetes/bin/nvidia/lib64" / driver.LIBRARY)
    found = driver.command(tmp_path, "nvidia-smi")
    assert found is not None
    assert found[0] == [str(tool)]
    assert found[1]["LD_LIBRARY_PATH"] == str(library.parent)
