"""What container runtimes keep on disk of a container, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.node_tree import CONTAINERD, CRIO, containerd_status, crio_state, id_of, write
from fleetwell.agent.runtime_files import LIMIT, RUNTIMES, Run, RunFile, Runtime, containerd, crio, find, under

# What containerd 2.4 wrote, by its own StoreStatus and UpdateSync: created, running, ended, and its child OOM-killed.
CREATED = (
    b'{"Version":"v1","Pid":0,"CreatedAt":1796014998331371018,"StartedAt":0,"FinishedAt":0,"ExitCode":0,"Reason":"",'
    b'"Message":"","Resources":{"linux":{"cpu_period":100000,"cpu_shares":2,"oom_score_adj":1000}}}'
)
RUNNING = CREATED.replace(b'"StartedAt":0', b'"StartedAt":1796014998332320698').replace(b'"Pid":0', b'"Pid":4711')
ENDED = (
    b'{"Version":"v1","Pid":0,"CreatedAt":1796014998331371018,"StartedAt":1796014998332320698,"FinishedAt":'
    b'1796014998354824369,"ExitCode":134,"Reason":"","Message":"","Resources":{"linux":{"cpu_period":100000}}}'
)
STARTED, FINISHED = 1796014998.3323207, 1796014998.3548244


def test_containerds_form_is_read() -> None:
    assert containerd(CREATED) == Run(0.0, 0.0, 0, "")
    running, ended = containerd(RUNNING), containerd(ENDED)
    assert (running.started, running.finished) == pytest.approx((STARTED, 0.0))
    assert (ended.started, ended.finished) == pytest.approx((STARTED, FINISHED))
    assert ended[2:] == (134, "")
    killed = ENDED.replace(b"134", b"137").replace(b'"Reason":""', b'"Reason":"OOMKilled"')
    assert containerd(killed)[2:] == (137, "OOMKilled")


def test_crios_form_is_read() -> None:
    assert crio(crio_state(1000.0).encode()) == Run(1000.0, 0.0, 0, "")
    assert crio(crio_state(1000.0, 1060.5, 139).encode()) == Run(1000.0, 1060.5, 139, "")
    assert crio(crio_state(1000.0, 1060.5, 137, oom=True).encode())[2:] == (137, "OOMKilled")
    offset = b'{"started":"2026-01-01T02:00:00+02:00","finished":"2026-01-01T00:00:01Z","exitCode":1}'
    assert crio(offset) == Run(1767225600.0, 1767225601.0, 1, "")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        ENDED.replace(b'"v1"', b'"v2"'),
        ENDED.replace(b"134", b'"134"'),
        ENDED.replace(b"134", b"1e400"),
        ENDED.replace(b"134", b"9" * 400),
        b'{"Version":"v1","x":' + b"[" * 5000,
        b'{"started": "yesterday"}',
        b'{"started": 5}',
        b'{"finished": "0001-01-01T00:00:00+14:00", "exitCode": 134}',
        b'{"exitCode": 134.5}',
    ],
)
def test_what_is_not_of_the_form_says_nothing_or_that_nothing_has_ended(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(text)
    for form in (containerd, crio):
        run = RunFile(str(tmp_path / "file"), form).read()
        assert run is None or not run.finished


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(ENDED + b" " * (LIMIT - len(ENDED)))
    assert RunFile(str(tmp_path / "file"), containerd).read() is not None
    (tmp_path / "file").write_bytes(ENDED + b" " * (LIMIT - len(ENDED) + 1))
    assert RunFile(str(tmp_path / "file"), containerd).read() is None


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: str(runtime.folder))
def test_a_container_is_found_by_its_id_whichever_runtime_has_it(runtime: Runtime, tmp_path: Path) -> None:
    written = (containerd_status if runtime.read is containerd else crio_state)(1.0, 2.0, 134)
    write(tmp_path / runtime.folder / id_of("main") / runtime.file, written)
    found = find(str(tmp_path), RUNTIMES, id_of("main"))
    assert found is not None
    assert found.read() == Run(1.0, 2.0, 134, "")
    assert find(str(tmp_path), RUNTIMES, id_of("other")) is None


def test_a_root_that_is_a_link_to_another_disk_is_followed_within_the_hosts_tree(tmp_path: Path) -> None:
    host = tmp_path / "host"
    write(host / "mnt/disk0/io.containerd.grpc.v1.cri/containers" / id_of("main") / "status", ENDED.decode())
    (host / "var/lib").mkdir(parents=True)
    (host / "var/lib/containerd").symlink_to("/mnt/disk0")
    found = find(str(host), RUNTIMES, id_of("main"))
    assert found is not None
    assert found.read() is not None


def test_a_root_of_ones_own_is_looked_at_first(tmp_path: Path) -> None:
    runtimes = (*under(Path("/data/containerd")), *under(Path("data/crio")), *RUNTIMES)
    written = (
        "data/containerd/io.containerd.grpc.v1.cri/containers/ID/status",
        "data/crio/overlay-containers/ID/userdata",
    )
    write(tmp_path / CONTAINERD / id_of("main") / "status", ENDED.decode())
    write(tmp_path / written[0].replace("ID", id_of("main")), ENDED.replace(b"134", b"135").decode())
    write(tmp_path / written[1].replace("ID", id_of("other")) / "state.json", crio_state(1.0, 2.0, 136))
    found = [find(str(tmp_path), runtimes, id_of(name)) for name in ("main", "other")]
    runs = [one.read() for one in found if one is not None]
    assert [one.code for one in runs if one is not None] == [135, 136]


def test_links_in_place_of_files_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", ENDED.decode())
    for folder, name in ((CONTAINERD, "status"), (CRIO, "userdata/state.json")):
        path = tmp_path / folder / id_of("main") / name
        path.parent.mkdir(parents=True)
        path.symlink_to(tmp_path / "elsewhere")
    assert find(str(tmp_path), RUNTIMES, id_of("main")) is None
