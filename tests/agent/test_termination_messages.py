"""Termination messages on a node's disk: which are found, which are news, and how much of them is read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetwell.agent import termination_messages
from fleetwell.agent.job_reports import JobReports
from fleetwell.agent.silent_jobs import MESSAGES_EVERY, SilentJobs
from fleetwell.agent.termination_messages import MESSAGE_LIMIT, Scanner
from fleetwell.api.node_health import NodeHealthStatus
from fleetwell.health.vocabulary import Verdict
from fleetwell.kube.token_review import Bearer

UID = "5f0c9f5e-1f2a-4b7e-9d2a-6d1b5f3c2a10"
XID = b"RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
TAKEN = ("terminationMessage", "workerDied", "taken")
TOO_MANY = ("terminationMessage", "", "too_many_requests")

FOLDER = "var/lib/kubelet/pods"


class Ground:
    """A node's tree, and its agent."""

    def __init__(self, root: Path) -> None:
        self.now = 0.0
        self.looks = 0
        self.scans = 0
        self.root = root
        self.reports = JobReports("n", self.review, self.look, self.status, monotonic=lambda: self.now)
        self.silent = SilentJobs(
            root, self.reports.heard, self.reports.not_heard, monotonic=lambda: self.scans * MESSAGES_EVERY
        )

    async def review(self, _token: str) -> Bearer | None:
        return None

    async def look(self) -> bool:
        self.looks += 1
        return True

    def status(self) -> NodeHealthStatus:
        return NodeHealthStatus(verdict=Verdict.OK)

    def file(self, pod: str = UID, container: str = "main", name: str = "1a2b3c4d") -> Path:
        path = self.root / FOLDER / pod / "containers" / container / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    async def scan(self) -> int:
        """Scan once, and give the looks that came of it."""
        before = self.looks
        async with asyncio.TaskGroup() as looks:
            await self.silent.look(looks)
        self.scans += 1
        return self.looks - before


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.silent.close()


async def test_a_message_that_is_written_into_the_file_of_a_running_container_makes_the_probes_look(
    ground: Ground,
) -> None:
    file = ground.file()
    file.touch()  # as the kubelet does when the container begins
    os.utime(file.parent, (1, 1))  # nothing in the directory tells of what follows
    assert await ground.scan() == 0
    assert await ground.scan() == 0
    with file.open("ab") as message:
        message.write(XID)
    os.utime(file.parent, (1, 1))
    assert await ground.scan() == 1
    assert await ground.scan() == 0
    assert ground.reports.counts == {TAKEN: 1}


async def test_a_message_of_a_pod_that_came_and_ended_between_two_scans_is_heard(ground: Ground) -> None:
    assert await ground.scan() == 0
    ground.file().write_bytes(XID)
    assert await ground.scan() == 1
    ground.file(name="restarted").write_bytes(XID)
    ground.file(container="sidecar").write_bytes(XID)
    assert await ground.scan() == 2


async def test_what_was_there_before_the_agent_began_is_no_report(ground: Ground) -> None:
    ground.file().write_bytes(XID)
    assert await ground.scan() == 0
    ground.file(name="empty").touch()
    assert await ground.scan() == 0
    moved = ground.file(pod="of-long-ago")
    moved.write_bytes(XID)
    os.utime(moved, (1, 1))
    assert await ground.scan() == 0
    assert ground.reports.counts == {}


async def test_only_regular_files_are_read(ground: Ground, tmp_path: Path) -> None:
    await ground.scan()
    secret = tmp_path / "secret"
    secret.write_bytes(XID)
    ground.file(name="link").symlink_to(secret)
    os.mkfifo(ground.file(name="fifo"))
    ground.file(name="folder").mkdir()
    (tmp_path / FOLDER / "linked").symlink_to(tmp_path / FOLDER / UID)
    (tmp_path / FOLDER / "file").write_bytes(XID)
    assert await ground.scan() == 0


async def test_a_file_that_became_a_link_after_it_was_listed_is_not_read(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanner = Scanner(ground.root)
    scanner.scan()
    real = ground.file(name="real")
    real.write_bytes(XID)
    monkeypatch.setattr(termination_messages, "READ_AT_ONCE", 0)
    assert scanner.scan() == []
    real.rename(ground.root / "elsewhere")
    real.symlink_to(ground.root / "elsewhere")
    monkeypatch.setattr(termination_messages, "READ_AT_ONCE", 8)
    assert scanner.scan() == []


async def test_of_a_huge_message_the_end_is_read(ground: Ground) -> None:
    scanner = Scanner(ground.root)
    scanner.scan()
    file = ground.file()
    with file.open("wb") as message:
        message.truncate(1 << 30)
        message.seek(0, os.SEEK_END)
        message.write(b"\n" + XID)
    (found,) = scanner.scan()
    assert (found.pod, found.container, len(found.said)) == (UID, "main", MESSAGE_LIMIT)
    assert found.said.endswith(XID)
    assert found.at == pytest.approx(file.stat().st_mtime)


async def test_a_flood_of_messages_is_read_bit_by_bit_and_cut(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination_messages, "READ_AT_ONCE", 4)
    monkeypatch.setattr(termination_messages, "WAITING", 10)
    await ground.scan()
    for number in range(15):
        ground.file(pod=f"pod-{number}").write_bytes(XID)
    assert [await ground.scan() for _ in range(4)] == [4, 4, 2, 0]
    assert ground.reports.counts == {TAKEN: 10, TOO_MANY: 5}


async def test_pods_containers_and_files_beyond_the_limits_are_not_looked_at(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("PODS", 3), ("CONTAINERS", 2), ("ALL_CONTAINERS", 5), ("FILES", 4)):
        monkeypatch.setattr(termination_messages, name, limit)
    scanner = Scanner(ground.root)
    scanner.scan()
    for number in range(4 * 4 * 6):
        pod, container = number % 4, number // 4 % 4
        ground.file(pod=f"p{pod}", container=f"c{container}", name=f"f{number}").write_bytes(XID)
    assert len(scanner.scan()) == 5 * termination_messages.FOLLOWED


async def test_a_pod_is_heard_as_often_as_its_reports_are(ground: Ground) -> None:
    await ground.scan()
    looks = []
    for number in range(7):
        ground.file(name=f"restart-{number}").write_bytes(XID)
        looks.append(await ground.scan())
    assert looks == [1, 1, 1, 1, 1, 0, 0]
    ground.file(pod="another").write_bytes(XID)
    assert await ground.scan() == 1
    ground.now += 10
    ground.file(name="later").write_bytes(XID)
    assert await ground.scan() == 1
    assert ground.reports.counts == {TAKEN: 7, TOO_MANY: 2}


async def test_a_folder_that_cannot_be_read_is_no_end(ground: Ground) -> None:
    assert await ground.scan() == 0
    (ground.root / FOLDER).parent.mkdir(parents=True)
    (ground.root / FOLDER).write_text("no directory")
    assert await ground.scan() == 0
    (ground.root / FOLDER).unlink()
    ground.file().write_bytes(XID)
    assert await ground.scan() == 1


async def test_a_kubelets_folder_on_another_disk_is_found_within_the_hosts_tree(ground: Ground) -> None:
    (ground.root / "mnt/disk0").mkdir(parents=True)
    (ground.root / "var/lib").mkdir(parents=True)
    (ground.root / "var/lib/kubelet").symlink_to("/mnt/disk0")
    await ground.scan()
    message = ground.root / "mnt/disk0/pods" / UID / "containers/main/1a2b3c4d"
    message.parent.mkdir(parents=True)
    message.write_bytes(XID)
    assert await ground.scan() == 1


async def test_a_pod_that_is_gone_is_forgotten(ground: Ground) -> None:
    await ground.scan()
    file = ground.file()
    file.write_bytes(XID)
    assert await ground.scan() == 1
    file.unlink()
    file.parent.rmdir()
    assert await ground.scan() == 0
    ground.file().write_bytes(XID)
    assert await ground.scan() == 1
