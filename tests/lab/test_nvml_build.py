import ctypes
from pathlib import Path

import pytest

from fleetwell.lab import nvml_build
from fleetwell.lab.nvml_build import NvmlBuildError


def test_the_library_is_compiled_once_and_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []

    first = nvml_build.library(said.append)
    monkeypatch.setenv("CC", "no-such-compiler")  # the second time none is needed
    second = nvml_build.library(said.append)

    assert first == second
    assert first.is_relative_to(tmp_path / "fleetwell/nvml")
    assert len(said) == 1
    assert [path.name for path in first.parent.iterdir()] == ["libnvidia-ml.so.1"]


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")

    with pytest.raises(NvmlBuildError, match=r"no `no-such-compiler` on the PATH(?s:.*)hint: install gcc"):
        nvml_build.library(lambda _line: None)


def test_a_failing_compiler_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "false")

    with pytest.raises(NvmlBuildError, match="exit code 1"):
        nvml_build.library(lambda _line: None)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_library_exports_nvml_and_nothing_else(mock_nvml: Path) -> None:
    library = ctypes.CDLL(str(mock_nvml))

    assert hasattr(library, "nvmlInit_v2")
    assert not hasattr(library, "state_read")
