"""Where the control plane's programs come from."""

import fcntl
import threading
from pathlib import Path

import pytest

from fleetwell.lab import controlplane_build, go_toolchain
from fleetwell.lab.controlplane_build import (
    PROGRAMS,
    Binaries,
    ControlPlaneBuildError,
    binaries,
    cache_key,
    find_sources,
)
from fleetwell.lab.go_toolchain import GoToolchain

BANNER = "go version go1.26.8 linux/amd64"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    for name, text in (("main.go", "package main"), ("go.mod", "module m\n\ngo 1.26.0\n"), ("go.sum", "")):
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def go(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for go, the sources it gets and an empty cache."""
    program = tmp_path / "go"
    monkeypatch.delenv(controlplane_build.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(controlplane_build, "find_sources", lambda: sources)
    monkeypatch.setattr(go_toolchain, "find", lambda needed: GoToolchain(program, BANNER))
    return program


def write_go(program: Path, script: str) -> None:
    # The last arguments are `-o FILE .`
    program.write_text(f"#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\nout=$1\n{script}\n")
    program.chmod(0o755)


def test_each_input_of_the_build_changes_the_name_of_its_place_in_the_cache(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [cache_key(sources, BANNER), cache_key(sources, "go version go1.27.3 linux/amd64")]
    for file in ("main.go", "go.mod", "go.sum"):
        (sources / file).write_text((sources / file).read_text() + "\n")
        names.append(cache_key(sources, BANNER))
    monkeypatch.setattr(controlplane_build, "_FLAGS", ("-trimpath",))
    names.append(cache_key(sources, BANNER))
    assert len(set(names)) == len(names)


def test_a_byte_that_moves_from_one_file_to_the_next_changes_the_name(sources: Path) -> None:
    before = cache_key(sources, BANNER)
    text = (sources / "main.go").read_text()
    (sources / "main.go").write_text(text[:-1])
    (sources / "go.mod").write_text(text[-1] + (sources / "go.mod").read_text())
    assert cache_key(sources, BANNER) != before


def test_the_sources_of_this_checkout_are_found() -> None:
    assert (find_sources() / "main.go").is_file()


def test_the_folder_that_the_user_names_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv(controlplane_build.FOLDER_VARIABLE, str(tmp_path))
    assert binaries(pytest.fail) == Binaries(
        etcd=(f"{tmp_path}/etcd",),
        kube_apiserver=(f"{tmp_path}/kube-apiserver",),
        kube_scheduler=(f"{tmp_path}/kube-scheduler",),
        kube_controller_manager=(f"{tmp_path}/kube-controller-manager",),
    )


def test_a_folder_without_all_programs_is_refused_by_the_names_of_those_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    (tmp_path / "kube-apiserver").touch(mode=0o755)
    (tmp_path / "kube-scheduler").touch(mode=0o644)
    monkeypatch.setenv(controlplane_build.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(ControlPlaneBuildError, match="called kube-scheduler, kube-controller-manager\\."):
        binaries(pytest.fail)


def test_a_build_says_what_it_does_and_is_done_once(go: Path) -> None:
    write_go(go, "echo k8s.io/api/core/v1 >&2; echo binary > $out; chmod +x $out")
    said: list[str] = []

    first = binaries(said.append)

    assert first.etcd[1:] == ("etcd",)
    assert Path(first.etcd[0]).read_text() == "binary\n"
    assert "about 8 minutes on 2 cores" in said[0]
    assert "1 packages compiled" in said[-1]
    write_go(go, "exit 1")
    assert binaries(pytest.fail) == first


def test_a_failed_build_shows_what_go_said_last_and_leaves_nothing_in_the_cache(go: Path) -> None:
    write_go(go, "for i in $(seq 30); do echo line $i; done; echo half > $out; exit 7")
    with pytest.raises(ControlPlaneBuildError) as caught:
        binaries(lambda _: None)
    text = str(caught.value)
    assert "exit code 7" in text
    assert "line 30" in text
    assert "line 15\n" not in text
    log = Path(text.rsplit(" ", 1)[1])
    assert "line 1\n" in log.read_text()
    assert sorted(path.name for path in log.parent.iterdir()) == ["build.lock", "build.log"]


def test_a_second_builder_waits_for_the_first_and_says_so(go: Path, sources: Path) -> None:
    write_go(go, "echo binary > $out; chmod +x $out")
    place = controlplane_build.cache_folder() / cache_key(sources, BANNER)
    place.mkdir(parents=True)
    waiting = threading.Event()
    said: list[str] = []

    def hear(line: str) -> None:
        said.append(line)
        waiting.set()

    with (place / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=binaries, args=(hear,))
        second.start()
        assert waiting.wait(20)
        # What the first builder leaves behind.
        (place / "fleetwell-controlplane").touch(mode=0o755)
    second.join(20)
    assert not second.is_alive()
    assert len(said) == 1
    assert said[0].startswith("another process is building the control plane; waiting")
