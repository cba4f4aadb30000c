"""Where the NVIDIA driver's user-space files are on this host: no runtime class puts them into the agent's image."""

from __future__ import annotations

from pathlib import Path

ROOTS = (
    "",  # installed on the host itself
    "run/nvidia/driver",  # the GPU operator's driver container
    "home/kubernetes/bin/nvidia",  # GKE's Container-Optimized OS
    "x86_64-bottlerocket-linux-gnu/sys-root",  # Bottlerocket
    "aarch64-bottlerocket-linux-gnu/sys-root",
)
"""Driver roots below the host's root, in the order in which they are tried."""

LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "usr/local/nvidia/lib64",
)
LIBRARY = "libnvidia-ml.so.1"


def library(host_root: Path) -> Path | None:
    """Find NVML's library below a host root."""
    return _find(host_root, LIBRARY_FOLDERS, LIBRARY)


def program(host_root: Path, name: str) -> Path | None:
    """Find one of the driver's programs, e.g. ``nvidia-smi``."""
    return _find(host_root, ("usr/bin", "bin", "usr/local/nvidia/bin"), name)


def _find(host_root: Path, folders: tuple[str, ...], name: str) -> Path | None:
    for root in ROOTS:
        for folder in folders:
            found = host_root / root / folder / name
            if found.exists():
                return found
    return None


def cuda(host_root: Path) -> Path | None:
    """Find CUDA's own library below a host root: NVML alone does not compute."""
    return _find(host_root, LIBRARY_FOLDERS, "libcuda.so.1")
