"""Reads what container runtimes keep on disk about each container: when it began and ended, and with which code.

Both write the file anew and rename it over the old one, so that it is whole whenever it is read.

- containerd: ``<root>/io.containerd.grpc.v1.cri/containers/ID/status``, the same in 1.7 and 2.x; times in nanoseconds,
  0 where there is none (containerd, ``cri/store/container/status.go`` and ``plugins/cri/runtime/plugin.go``).
- CRI-O: ``<storage>/overlay-containers/ID/userdata/state.json``; times in RFC 3339, year 1 where there is none, and
  the runtime's own state around them (CRI-O, ``internal/oci/container.go``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from fleetwell.agent import host_files

LIMIT: Final = 64 * 1024
"""Bytes of one file: they have 300 to 2000, and what a runtime says of a failed start."""
_Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]
_Nanoseconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Code = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class Run(NamedTuple):
    """One run of a container."""

    started: float
    finished: float
    """Seconds since the epoch; 0: not yet."""
    code: int
    reason: str
    """The runtime's word for the end, mostly empty."""


class _Containerd(msgspec.Struct, rename="pascal"):
    version: str
    started_at: _Nanoseconds = 0
    finished_at: _Nanoseconds = 0
    exit_code: _Code = 0
    reason: str = ""


class _Crio(msgspec.Struct, rename="camel"):
    started: _Moment | None = None
    finished: _Moment | None = None
    exit_code: _Code | None = None
    oom_killed: bool = False


def containerd(text: bytes) -> Run:
    """Read containerd's form.

    :raises ValueError: it is not of that form.
    """
    status = msgspec.json.decode(text, type=_Containerd)
    if status.version != "v1":
        raise ValueError(f"version {status.version[:16]!r} is not known")
    return Run(max(0, status.started_at) / 1e9, max(0, status.finished_at) / 1e9, status.exit_code, status.reason)


def crio(text: bytes) -> Run:
    """Read CRI-O's form.

    :raises ValueError: it is not of that form.
    """
    state = msgspec.json.decode(text, type=_Crio)
    ended = _seconds(state.finished) if state.exit_code is not None else 0.0
    return Run(_seconds(state.started), ended, state.exit_code or 0, "OOMKilled" if state.oom_killed else "")


def _seconds(moment: dt.datetime | None) -> float:
    return max(0.0, moment.timestamp()) if moment is not None else 0.0


class Runtime(NamedTuple):
    """Where a runtime keeps its files."""

    folder: str
    """On the host; it has one folder for each container, with its id for a name."""
    file: str
    read: Callable[[bytes], Run]


_CRIO = "overlay-containers"
_CRI = "io.containerd.grpc.v1.cri/containers"
RUNTIMES: Final = (
    *(
        Runtime(f"{root}/{_CRI}", "status", containerd)
        for root in (
            "var/lib/containerd",
            "var/lib/rancher/k3s/agent/containerd",
            "var/lib/rancher/rke2/agent/containerd",
            "var/lib/k0s/containerd",
            "var/snap/microk8s/common/var/lib/containerd",
        )
    ),
    Runtime(f"var/lib/containers/storage/{_CRIO}", "userdata/state.json", crio),
)
"""The usual places: of containerd itself, k3s, RKE2, k0s and MicroK8s, and of CRI-O."""


def under(root: Path | None) -> tuple[Runtime, ...]:
    """Give where either runtime has its files when this is its root, or its storage's."""
    if root is None:
        return ()
    return Runtime(f"{root}/{_CRI}", "status", containerd), Runtime(f"{root}/{_CRIO}", "userdata/state.json", crio)


class RunFile(NamedTuple):
    """The file of one container."""

    path: str
    form: Callable[[bytes], Run]

    def read(self) -> Run | None:
        """Read it; None where it is not as its runtime writes it."""
        try:
            return self.form(host_files.whole(self.path, LIMIT))
        except (ValueError, RecursionError):
            return None


def find(root: str, runtimes: Iterable[Runtime], container: str) -> RunFile | None:
    """Find the file of a container below the host's root, by its id."""
    for runtime in runtimes:
        try:
            path = f"{host_files.inside(root, f'{runtime.folder}/{container}')}/{runtime.file}"
        except OSError:
            continue
        if host_files.sign(path) is not None:
            return RunFile(path, runtime.read)
    return None
