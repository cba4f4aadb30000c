"""Where the NVIDIA driver's user-space files are on this host: no runtime class puts them into the agent's image."""

from __future__ import annotations

import os
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
    "usr/lib/nvidia/tesla",  # Bottlerocket
    "lib64",
    "usr/local/nvidia/lib64",
)
PROGRAM_FOLDERS = ("usr/bin", "bin", "usr/libexec/nvidia/tesla/bin", "usr/local/nvidia/bin")
LIBRARY = "libnvidia-ml.so.1"
LOADERS = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
"""What makes a folder a whole system: programs below it find their own C library there, and only there."""
MAX_LINKS = 8


def library(host_root: Path) -> Path | None:
    """Find NVML's library below a host root."""
    return _find(host_root, LIBRARY_FOLDERS, LIBRARY)


def program(host_root: Path, name: str) -> Path | None:
    """Find one of the driver's programs, e.g. ``nvidia-smi``."""
    return _find(host_root, PROGRAM_FOLDERS, name)


def command(host_root: Path, name: str) -> tuple[list[str], dict[str, str]] | None:
    """Give how one of the driver's programs is run from here, and its environment; None where there is none.

    It was built for the system that it lies in. Where that is another one than ours and whole, it is run inside of it;
    with our C library and its NVML, or the other way round, it would fail in ways that look like a broken driver.
    """
    tool = program(host_root, name)
    if tool is None:
        return None
    environment = dict(os.environ)
    root = next(host_root / root for root in reversed(ROOTS) if tool.is_relative_to(host_root / root))
    if root == Path("/"):
        return [str(tool)], environment
    if os.geteuid() == 0 and any(_exists(root, loader) for loader in LOADERS):
        return ["chroot", str(root), f"/{tool.relative_to(root)}"], environment
    path = library(host_root)
    if path is not None:
        environment["LD_LIBRARY_PATH"] = str(path.parent)
    return [str(tool)], environment


def cuda(host_root: Path) -> Path | None:
    """Find CUDA's own library below a host root: NVML alone does not compute."""
    return _find(host_root, LIBRARY_FOLDERS, "libcuda.so.1")


def _find(host_root: Path, folders: tuple[str, ...], name: str) -> Path | None:
    for root in ROOTS:
        for folder in folders:
            found = _exists(host_root / root, f"{folder}/{name}")
            if found is not None:
                return found
    return None


def _exists(root: Path, name: str) -> Path | None:
    """Follow links as the system below ``root`` does: an absolute one leads to a file of that system, not of ours."""
    path = root / name
    for _ in range(MAX_LINKS):
        try:
            target = path.readlink()
        except OSError:
            return path if path.exists() else None
        if target.is_absolute() and (root / target.relative_to("/")).exists():
            path = root / target.relative_to("/")
        elif path.exists():
            return path
        else:
            path = path.parent / target
    return None
