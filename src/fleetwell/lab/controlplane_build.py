"""The programs of the control plane: from the folder that FLEETWELL_CONTROL_PLANE names, else built once and cached.

The build compiles Kubernetes itself, which takes minutes, so it says what it does, shows life while it does it, and
happens once per content of the sources, Go version and flags.
"""

import contextlib
import fcntl
import hashlib
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fleetwell.lab import go_toolchain, processes
from fleetwell.lab.go_toolchain import GoToolchain

Progress: TypeAlias = Callable[[str], None]

FOLDER_VARIABLE = "FLEETWELL_CONTROL_PLANE"
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")

_BINARY = "fleetwell-controlplane"
_SOURCES = ("main.go", "go.mod", "go.sum")
# kubectl refuses a server without a version it can parse, and a library build has none.
_VERSION_PACKAGE = "k8s.io/component-base/version"
_LDFLAGS = " ".join(
    ["-s -w"]
    + [
        f"-X {_VERSION_PACKAGE}.{name}={value}"
        for name, value in (("gitVersion", "v1.37.2"), ("gitMajor", "1"), ("gitMinor", "37"))
    ]
)
_FLAGS = ("-trimpath", "-ldflags", _LDFLAGS)
_USUAL = "about 8 minutes on 2 cores, once; cached afterwards"
_REPORT_EVERY_S = 15.0
_LOCK_POLL_S = 0.5


class ControlPlaneBuildError(RuntimeError):
    """The control plane's programs could not be found or built."""


@dataclass(frozen=True)
class Binaries:
    """How each program is started: the first words of its command line, flags follow."""

    etcd: tuple[str, ...]
    kube_apiserver: tuple[str, ...]
    kube_scheduler: tuple[str, ...]
    kube_controller_manager: tuple[str, ...]


def binaries(progress: Progress) -> Binaries:
    """Return the four programs, building them first when that is needed.

    ``progress`` gets a line whenever there is something to say. Raises ControlPlaneBuildError or NoGoError.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        return from_folder(Path(folder))
    sources = find_sources()
    needed = go_toolchain.parse_go_mod((sources / "go.mod").read_text(encoding="utf-8"))
    go = go_toolchain.find(needed)
    binary = cache_folder() / cache_key(sources, go.banner) / _BINARY
    if not binary.exists():
        with _locked(binary.with_name("build.lock"), progress):
            if not binary.exists():
                _build(go, sources, binary, progress)
    return Binaries(*((str(binary), program) for program in PROGRAMS))


def from_folder(folder: Path) -> Binaries:
    """Take the four programs from a folder; ControlPlaneBuildError names those that are not there."""
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing:
        raise ControlPlaneBuildError(
            f"{FOLDER_VARIABLE} names {folder}, where no program is called {', '.join(missing)}. Nothing was started.\n"
            f"hint: put all of {', '.join(PROGRAMS)} there, or unset {FOLDER_VARIABLE} to have them built"
        )
    return Binaries(*((str(folder / name),) for name in PROGRAMS))


def find_sources() -> Path:
    """Return the folder of the Go module: inside the installed package, else in the repository around it."""
    here = Path(__file__).resolve()
    places = (here.parent / "_controlplane", here.parents[3] / "lab" / "controlplane")
    for place in places:
        if all((place / name).is_file() for name in _SOURCES):
            return place
    raise ControlPlaneBuildError(
        f"the Go sources of the control plane are in neither {places[0]} nor {places[1]}, so nothing can be built.\n"
        f"hint: install fleetwell from a wheel or a checkout, or set {FOLDER_VARIABLE}"
    )


def cache_folder() -> Path:
    """Return the folder of all builds, outside any source tree."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fleetwell" / "controlplane"


def cache_key(sources: Path, go_banner: str) -> str:
    """Name one build by everything that decides what comes out of it."""
    digest = hashlib.sha256()
    parts = [(sources / name).read_bytes() for name in _SOURCES]
    parts += [go_banner.encode(), *(flag.encode() for flag in _FLAGS)]
    for part in parts:
        # With its length, so that a byte that moves from one part to the next changes the name.
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        said = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not said:
                    progress(f"another process is building the control plane; waiting for it (lock {path})")
                    said = True
                time.sleep(_LOCK_POLL_S)
            else:
                break
        yield


def _build(go: GoToolchain, sources: Path, binary: Path, progress: Progress) -> None:
    log = binary.with_name("build.log")
    log.unlink(missing_ok=True)
    new = binary.with_name(f"{_BINARY}.new")
    argv = [str(go.program), "build", "-v", *_FLAGS, "-o", str(new), "."]
    progress(f"building the control plane (Kubernetes v1.37 and etcd) with {go.banner}: {_USUAL}")
    began = time.monotonic()
    environment = go_toolchain.environment(os.environ)
    process = processes.start("go-build", argv, log=log, cwd=sources, env=environment, tied=True)
    try:
        while not process.wait(_REPORT_EVERY_S):
            progress(f"building the control plane: {_so_far(began, log)}")
    finally:
        process.stop()  # ends the compilers too when this is interrupted; nothing to do after a finished build
    code = process.exit_code()
    if code != 0 or not new.exists():
        new.unlink(missing_ok=True)
        raise ControlPlaneBuildError(
            f"building the control plane failed: `{shlex.join(argv)}` in {sources} ended with exit code {code}. "
            f"Nothing was put in the cache. Its last lines:\n{processes.tail(log, 15)}\nhint: all of it is in {log}"
        )
    new.replace(binary)
    progress(f"the control plane is built: {_so_far(began, log)}; kept in {binary.parent}")


def _so_far(began: float, log: Path) -> str:
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    # `go build -v` writes one line for each package when it is compiled, and some when a module is downloaded.
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    downloads = sum(line.startswith("go: downloading") for line in lines)
    text = f"{minutes} min {seconds:02d} s, {len(lines) - downloads} packages compiled"
    return f"{text}, {downloads} modules downloaded" if downloads else text
