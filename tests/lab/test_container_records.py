"""What a container of the lab leaves on its node's disk, as its agent reads it."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from agent.node_tree import UID
from fleetwell.agent import runtime_files
from fleetwell.agent.container_ends import Scanner
from fleetwell.kube.objects import ObjectMeta, Pod
from fleetwell.lab.container_records import ContainerRecord, Status, forget, power_came_back
from fleetwell.lab.devices import Allocations, Device

OTHER = Pod(metadata=ObjectMeta(name="train-0", namespace="ml", uid="11111111-2222-3333-4444-555555555555"))
POD = Pod(metadata=ObjectMeta(name="train-0", namespace="ml", uid=UID))


def begin(root: Path, attempt: int = 0, container: str = "main", pod: Pod = POD) -> ContainerRecord:
    record = ContainerRecord(root, pod, container, attempt)
    record.began(4711, root / "output")
    return record


def read(root: Path, record: ContainerRecord) -> runtime_files.Run | None:
    found = runtime_files.find(str(root), runtime_files.RUNTIMES, record.id)
    return found.read() if found is not None else None


@pytest.fixture
def allocations(tmp_path: Path) -> Allocations:
    made = Allocations(tmp_path / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    made.offered = [Device(f"GPU-{number}", healthy=True) for number in range(4)]
    return made


def test_an_agent_hears_a_container_with_gpus_end(tmp_path: Path, allocations: Allocations) -> None:
    scanner = Scanner(tmp_path)
    scanner.scan()
    assert allocations.take(UID, {"main": 2, "sidecar": 0}) == ("GPU-0", "GPU-1")
    main, sidecar = begin(tmp_path), begin(tmp_path, container="sidecar")
    assert scanner.scan() == []
    main.ended(134)
    sidecar.ended(139)
    (ended,) = scanner.scan()
    assert (ended.pod, ended.container, ended.run.code) == (UID, "main", 134)
    assert time.time() - 60 < ended.run.started <= ended.run.finished


def test_devices_are_noted_until_the_next_pod_gets_some(tmp_path: Path, allocations: Allocations) -> None:
    allocations.take(UID, {"main": 2})
    allocations.give_back(UID)
    scanner = Scanner(tmp_path)
    scanner.scan()
    begin(tmp_path).ended(134)
    assert len(scanner.scan()) == 1
    allocations.take(OTHER.metadata.uid, {"main": 1})
    begin(tmp_path).ended(134)
    assert scanner.scan() == []


def test_the_last_run_of_a_container_is_kept_and_all_goes_with_its_pod(tmp_path: Path) -> None:
    runs = []
    for attempt in range(3):
        runs.append(begin(tmp_path, attempt))
        runs[-1].ended(attempt)
    stays = begin(tmp_path, pod=OTHER)
    assert [read(tmp_path, run) is not None for run in runs] == [False, True, True]
    links = tmp_path / "var/log/containers"
    assert len(list(links.iterdir())) == 3
    forget(tmp_path, POD)
    assert [read(tmp_path, run) for run in runs] == [None, None, None]
    assert read(tmp_path, stays) is not None
    assert [link.name for link in links.iterdir()] == [f"train-0_ml_main-{stays.id}.log"]
    assert not (tmp_path / "var/log/pods" / f"ml_train-0_{UID}").exists()


def test_what_ran_when_the_power_went_ended_nobody_knows_how(tmp_path: Path) -> None:
    ended, running = begin(tmp_path), begin(tmp_path, container="other")
    ended.ended(3)
    power_came_back(tmp_path)
    for record, code, reason in ((ended, 3, ""), (running, 255, "Unknown")):
        run = read(tmp_path, record)
        assert run is not None
        assert (run.code, run.reason) == (code, reason)
        assert run.finished > 0


def test_the_form_is_containerds() -> None:
    """As its own code wrote it; that writes resources, too."""
    text = msgspec.json.encode(Status(created_at=1, started_at=2, finished_at=3, exit_code=134))
    assert text == (
        b'{"Version":"v1","Pid":0,"CreatedAt":1,"StartedAt":2,"FinishedAt":3,"ExitCode":134,"Reason":"","Message":""}'
    )
