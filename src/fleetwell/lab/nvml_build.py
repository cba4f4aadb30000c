"""The mock ``libnvidia-ml.so.1``: compiled once per content of its sources and flags, and cached.

It is C because the real bindings (nvidia-ml-py) load a shared library by name, and what is to be tested is that path.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], None]

LIBRARY = "libnvidia-ml.so.1"
_FLAGS = (
    *("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-fvisibility=hidden"),
    *("-shared", "-Wl,-soname,libnvidia-ml.so.1", "-pthread"),
)
_DEADLINE_S = 120


class NvmlBuildError(RuntimeError):
    """The mock NVML could not be compiled."""


def library(progress: Progress) -> Path:
    """Return the compiled library, compiling it first when the cache has none of these sources.

    Several processes may ask at once: each compiles to a file of its own and renames it, so nobody sees half of one.
    Raises NvmlBuildError.
    """
    sources = find_sources()
    built = cache_folder() / _key(sources) / LIBRARY
    if built.exists():
        return built
    compiler = _compiler()
    built.parent.mkdir(parents=True, exist_ok=True)
    progress("compiling the mock NVML (libnvidia-ml.so.1): about 2 seconds, once; cached afterwards")
    handle, name = tempfile.mkstemp(dir=built.parent, prefix=f".{LIBRARY}.")
    os.close(handle)
    new = Path(name)
    try:
        _compile(compiler, [path for path in sources if path.suffix == ".c"], new)
        new.chmod(0o755)
        new.replace(built)
    finally:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
    return built


def find_sources() -> list[Path]:
    """Return the C files and headers: inside the installed package, else in the repository around it."""
    here = Path(__file__).resolve()
    places = (here.parent / "_nvml", here.parents[3] / "lab" / "nvml")
    for place in places:
        if (place / "nvml.h").is_file():
            return sorted([*place.glob("*.c"), *place.glob("*.h")])
    message = (
        f"the C sources of the mock NVML are in neither {places[0]} nor {places[1]}; this installation lacks them.\n"
        "hint: install fleetwell from a wheel or a checkout"
    )
    raise NvmlBuildError(message)


def cache_folder() -> Path:
    """Return the folder of all builds, outside any source tree."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fleetwell" / "nvml"


def _key(sources: list[Path]) -> str:
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for path in sources:
        content = path.read_bytes()
        digest.update(f"\0{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _compiler() -> str:
    wanted = os.environ.get("CC") or "cc"
    found = shutil.which(wanted)
    if found is None:
        message = (
            f"the lab's mock NVML needs a C compiler, and there is no `{wanted}` on the PATH. Nothing was started.\n"
            "hint: install gcc or clang (Debian, Ubuntu: apt-get install gcc libc6-dev), or name one in CC"
        )
        raise NvmlBuildError(message)
    return found


def _compile(compiler: str, sources: list[Path], into: Path) -> None:
    argv = [compiler, *_FLAGS, "-o", str(into), *map(str, sources)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as error:
        message = f"compiling the mock NVML took more than {_DEADLINE_S} s: `{shlex.join(argv)}`. Nothing was cached."
        raise NvmlBuildError(message) from error
    if done.returncode != 0:
        message = (
            f"compiling the mock NVML failed with exit code {done.returncode}: `{shlex.join(argv)}`. "
            "Nothing was cached.\n"
            f"{done.stderr.strip()[-2000:]}"
        )
        raise NvmlBuildError(message)
