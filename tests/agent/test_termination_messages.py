"""Termination messages on a node's disk: which are found, which are news, and how much of them is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.hearing import FOLDER, XID, Hearing
from agent.node_tree import UID
from fleetwell.agent import termination_messages
from fleetwell.agent.silent_jobs import MESSAGES_EVERY
from fleetwell.agent.termination_messages import MESSAGE_LIMIT, Scanner

TAKEN = ("terminationMessage", "workerDied", "taken")
TOO_MANY = ("terminationMessage", "", "too_many_requests")


class Ground(Hearing):
    """A node's tree, and its agent."""

    async def scan(self) -> int:
        """Scan once, and give the looks that came of it."""
        looks = await self.scan_once()
        self.ahead += MESSAGES_EVERY
        return looks


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.silent.close()


async def test_a_message_that_is_written_into_the_file_of_a_running_container_makes_the_probes_look(
    ground: Ground,
) -> None:
    file = ground.message()
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
    ground.message().write_bytes(XID)
    assert await ground.scan() == 1
    ground.message(name="restarted").write_bytes(XID)
    ground.message(container="sidecar").write_bytes(XID)
    assert await ground.scan() == 2


async def test_what_was_there_before_the_agent_began_is_no_report(ground: Ground) -> None:
    ground.message().write_bytes(XID)
    assert await ground.scan() == 0
    ground.message(name="empty").touch()
    assert await ground.scan() == 0
    moved = ground.message(pod="of-long-ago")
    moved.write_bytes(XID)
    os.utime(moved, (1, 1))
    assert await ground.scan() == 0
    assert ground.reports.counts == {}


async def test_only_regular_files_are_read(ground: Ground, tmp_path: Path) -> None:
    await ground.scan()
    secret = tmp_path / "secret"
    secret.write_bytes(XID)
    ground.message(name="link").symlink_to(secret)
    os.mkfifo(ground.message(name="fifo"))
    ground.message(name="folder").mkdir()
    (tmp_path / FOLDER / "linked").symlink_to(tmp_path / FOLDER / UID)
    (tmp_path / FOLDER / "file").write_bytes(XID)
    assert await ground.scan() == 0


async def test_a_file_that_became_a_link_after_it_was_listed_is_not_read(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanner = Scanner(ground.root)
    scanner.scan()
    real = ground.message(name="real")
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
    file = ground.message()
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
        ground.message(pod=f"pod-{number}").write_bytes(XID)
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
        ground.message(pod=f"p{pod}", container=f"c{container}", name=f"f{number}").write_bytes(XID)
    assert len(scanner.scan()) == 5 * termination_messages.FOLLOWED


async def test_a_pod_is_heard_as_often_as_its_reports_are(ground: Ground) -> None:
    await ground.scan()
    looks = []
    for number in range(7):
        ground.message(name=f"restart-{number}").write_bytes(XID)
        looks.append(await ground.scan())
    assert looks == [1, 1, 1, 1, 1, 0, 0]
    ground.message(pod="another").write_bytes(XID)
    assert await ground.scan() == 1
    ground.now += 10
    ground.message(name="later").write_bytes(XID)
    assert await ground.scan() == 1
    assert ground.reports.counts == {TAKEN: 7, TOO_MANY: 2}


async def test_a_folder_that_cannot_be_read_is_no_end(ground: Ground) -> None:
    assert await ground.scan() == 0
    (ground.root / FOLDER).parent.mkdir(parents=True)
    (ground.root / FOLDER).write_text("no directory")
    assert await ground.scan() == 0
    (ground.root / FOLDER).unlink()
    ground.message().write_bytes(XID)
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
    file = ground.message()
    file.write_bytes(XID)
    assert await ground.scan() == 1
    file.unlink()
    file.parent.rmdir()
    assert await ground.scan() == 0
    ground.message().write_bytes(XID)
    assert await ground.scan() == 1
