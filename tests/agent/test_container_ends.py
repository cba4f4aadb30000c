"""Containers with GPUs that end on a node, and what of it is news to its agent."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.node_tree import CRIO, UID, NodeTree, containerd_status, crio_state, id_of, write
from fleetwell.agent import container_ends
from fleetwell.agent.container_ends import Scanner
from fleetwell.agent.gpu_holders import CLAIMS, DEVICE_PLUGINS

KEYS = (
    *(
        "Data",
        "PodDeviceEntries",
        "PodUID",
        "ContainerName",
        "ResourceName",
        "ClaimInfoStateList",
        "PodUIDs",
        "DriverState",
    ),
    *("Version", "StartedAt", "FinishedAt", "ExitCode", "Reason", "started", "finished", "exitCode", "oomKilled"),
)
OTHER = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    made = NodeTree(tmp_path)
    made.give_gpus()
    return made


@pytest.fixture
def scanner(tree: NodeTree) -> Scanner:
    made = Scanner(tree.root)
    assert made.scan() == []
    return made


def codes(scanner: Scanner) -> list[int]:
    return [one.run.code for one in scanner.scan()]


def test_a_container_that_holds_gpus_is_heard_once_when_it_ends(tree: NodeTree, scanner: Scanner) -> None:
    tree.start()
    assert scanner.scan() == []
    tree.end(134)
    (ended,) = scanner.scan()
    assert (ended.pod, ended.container, ended.run.code) == (UID, "main", 134)
    assert ended.run.started < ended.run.finished
    assert scanner.scan() == []


def test_one_that_began_and_ended_between_two_scans_is_heard(tree: NodeTree, scanner: Scanner) -> None:
    tree.start(ago=0.5)
    tree.end(139, ran=0.1)
    assert codes(scanner) == [139]


def test_each_run_of_a_container_is_heard(tree: NodeTree, scanner: Scanner) -> None:
    for attempt in range(3):
        tree.start(f"run-{attempt}")
        scanner.scan()
        tree.end(134, f"run-{attempt}")
        assert codes(scanner) == [134]
        if attempt:
            tree.remove(f"run-{attempt - 1}")


def test_what_had_ended_before_the_agent_began_is_old_and_what_ran_then_is_not(tree: NodeTree) -> None:
    tree.start("old")
    tree.end(134, "old")
    tree.start("running")
    scanner = Scanner(tree.root)
    assert scanner.scan() == []
    tree.end(135, "running")
    assert codes(scanner) == [135]
    tree.start("of long ago")
    tree.end(136, "of long ago", ago=3600)
    assert codes(scanner) == []


def test_one_that_was_seen_running_is_news_though_the_clock_was_set_back(tree: NodeTree, scanner: Scanner) -> None:
    tree.start()
    scanner.scan()
    tree.end(134, ago=7200)
    assert codes(scanner) == [134]


def test_containers_without_gpus_are_not_looked_at(tree: NodeTree, scanner: Scanner) -> None:
    for name, pod, container in (("sidecar", UID, "sidecar"), ("other", OTHER, "main")):
        tree.start(name, pod, container)
        tree.end(134, name)
    assert codes(scanner) == []
    assert scanner.unknown == 0


def test_every_container_of_a_pod_with_a_claim_is_heard(tree: NodeTree, scanner: Scanner) -> None:
    tree.give_claim(OTHER)
    tree.start("claimed", OTHER, "train")
    tree.end(134, "claimed")
    assert [(one.pod, one.container) for one in scanner.scan()] == [(OTHER, "train")]


def test_a_container_whose_devices_were_given_to_the_next_pod_is_still_heard(tree: NodeTree, scanner: Scanner) -> None:
    tree.start()
    scanner.scan()
    tree.holders.clear()
    tree.give_gpus(OTHER)
    tree.end(134)
    assert codes(scanner) == [134]


def test_devices_that_are_noted_after_the_container_was_seen_count(tree: NodeTree, scanner: Scanner) -> None:
    tree.start("late", OTHER)
    scanner.scan()
    tree.give_gpus(OTHER)
    tree.end(134, "late")
    assert codes(scanner) == [134]


def test_one_whose_link_went_first_is_heard_and_one_that_is_gone_is_forgotten(tree: NodeTree, scanner: Scanner) -> None:
    tree.start()
    scanner.scan()
    tree.end(134)
    (link,) = (tree.root / "var/log/containers").iterdir()
    link.unlink()
    assert codes(scanner) == [134]
    tree.start("next")
    scanner.scan()
    tree.remove("next")
    assert scanner.scan() == []
    for code in (135, 136):
        tree.start("next")
        tree.end(code, "next")
        assert codes(scanner) == [code]
        tree.remove("next")
        assert scanner.scan() == []


def test_cri_o_is_heard_too(tree: NodeTree, scanner: Scanner) -> None:
    state = tree.root / CRIO / id_of("main") / "userdata/state.json"
    write(state, crio_state(time.time() - 60))
    tree.link()
    assert scanner.scan() == []
    write(state, crio_state(time.time() - 60, time.time(), 139))
    assert codes(scanner) == [139]


def test_a_runtime_that_is_not_known_is_told_of(tree: NodeTree, scanner: Scanner) -> None:
    tree.link()
    assert scanner.scan() == []
    assert scanner.unknown == 1
    write(tree.status(), containerd_status(time.time()))
    tree.link("next")
    scanner.scan()
    assert scanner.unknown == 1


@pytest.mark.parametrize(
    "target",
    [
        "/var/log/pods/ml_train-0_../main/0.log",
        f"/var/log/pods/ml_train-0_{UID}/../0.log",
        f"/var/log/pods/ml_train-0_{UID}/MAIN/0.log",
        f"/var/log/pods/{UID}/main/0.log",
        f"/var/log/pods/ml_train-0_{UID}/main",
        "x" * 4000,
    ],
)
def test_links_that_lead_elsewhere_tell_of_no_pod(tree: NodeTree, scanner: Scanner, target: str) -> None:
    write(tree.status(), containerd_status(time.time() - 60, time.time(), 134))
    link = tree.link()
    link.unlink()
    link.symlink_to(target)
    assert scanner.scan() == []


def test_names_that_are_not_a_containers_tell_nothing(tree: NodeTree, scanner: Scanner) -> None:
    logs = tree.root / "var/log/containers"
    logs.mkdir(parents=True)
    (logs / "train-0_ml_main-1234.log").symlink_to(f"/var/log/pods/ml_train-0_{UID}/main/0.log")
    (logs / f"train-0_ml_main-{id_of('main')}.log").write_text("a file and no link")
    os.mkfifo(logs / "fifo")
    (logs / b"\xff\xfe.log".decode(errors="surrogateescape")).touch()
    assert scanner.scan() == []


def test_a_file_that_makes_no_sense_is_looked_at_again_when_it_was_written_anew(
    tree: NodeTree, scanner: Scanner
) -> None:
    tree.start()
    scanner.scan()
    write(tree.status(), "{")
    assert codes(scanner) == []
    tree.end(134)
    assert codes(scanner) == [134]


@pytest.mark.parametrize(("limit", "number"), [("READ_AT_ONCE", 4), ("FOLLOWED", 4)])
def test_a_flood_is_read_bit_by_bit(tree: NodeTree, monkeypatch: pytest.MonkeyPatch, limit: str, number: int) -> None:
    monkeypatch.setattr(container_ends, limit, number)
    scanner = Scanner(tree.root)
    scanner.scan()
    for each in range(11):
        tree.start(f"n{each}")
        tree.end(134, f"n{each}")
    os.utime(tree.root / "var/log/containers", (1, 1))  # It is listed once.
    assert [len(scanner.scan()) for _ in range(4)] == [4, 4, 3, 0]


def test_one_that_is_gone_makes_room_for_another(tree: NodeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_ends, "FOLLOWED", 1)
    scanner = Scanner(tree.root)
    tree.start("first")
    scanner.scan()
    tree.remove("first")
    scanner.scan()
    tree.start("second")
    tree.end(134, "second")
    assert codes(scanner) == [134]


def test_no_more_links_are_looked_at_than_the_limit(tree: NodeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_ends, "CONTAINERS", 3)
    scanner = Scanner(tree.root)
    scanner.scan()
    for number in range(9):
        tree.start(f"n{number}")
        tree.end(134, f"n{number}")
    assert len(scanner.scan()) == 3


def test_without_a_kubelet_there_is_nothing_until_there_is_one(tmp_path: Path) -> None:
    scanner = Scanner(tmp_path)
    assert scanner.scan() == []
    tree = NodeTree(tmp_path)
    tree.give_gpus()
    tree.start()
    tree.end(134)
    assert codes(scanner) == [134]


_TEXTS = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
        max_leaves=20,
    ).map(lambda value: json.dumps(value).encode()),
)


@settings(max_examples=25, deadline=None)
@given(plugins=_TEXTS, claims=_TEXTS, status=_TEXTS, state=_TEXTS)
def test_whatever_stands_in_the_files_a_scan_goes_on_and_the_next_end_is_heard(
    plugins: bytes, claims: bytes, status: bytes, state: bytes
) -> None:
    with TemporaryDirectory() as folder:
        tree = NodeTree(Path(folder))
        tree.give_gpus()
        scanner = Scanner(tree.root)
        scanner.scan()
        tree.start()
        scanner.scan()
        kubelet = tree.root / "var/lib/kubelet"
        for path, text in (
            (kubelet / DEVICE_PLUGINS, plugins),
            (kubelet / CLAIMS, claims),
            (tree.status("broken"), status),
            (tree.root / CRIO / id_of("other") / "userdata/state.json", state),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        tree.link("broken")
        tree.link("other", container="other")
        scanner.scan()
        tree.end(134)
        assert 134 in codes(scanner)


@pytest.mark.parametrize("kubelet", ["var/lib/k0s/kubelet", "var/snap/microk8s/common/var/lib/kubelet"])
def test_a_kubelet_in_another_usual_place_is_found(tree: NodeTree, kubelet: str) -> None:
    place = tree.root / kubelet
    place.parent.mkdir(parents=True)
    (tree.root / "var/lib/kubelet").rename(place)
    scanner = Scanner(tree.root)
    scanner.scan()
    tree.start()
    tree.end(134)
    assert codes(scanner) == [134]


def test_a_runtime_with_a_root_of_its_own_is_heard(tree: NodeTree) -> None:
    scanner = Scanner(tree.root, Path("/data/containerd"))
    scanner.scan()
    tree.start()
    (tree.root / "data").mkdir()
    (tree.root / "var/lib/containerd").rename(tree.root / "data/containerd")
    scanner.scan()
    assert scanner.unknown == 0


def test_a_node_at_rest_costs_a_few_system_calls(tree: NodeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.start("mine")
    for number in range(50):
        tree.start(f"n{number}", OTHER)
    for folder in (tree.root / "var/log/containers", tree.root / "var/lib/kubelet"):
        os.utime(folder, (1, 1))
    scanner = Scanner(tree.root)
    scanner.scan()
    calls: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        return call

    for name in ("lstat", "readlink", "open", "scandir"):
        monkeypatch.setattr(os, name, counted(name))
    assert scanner.scan() == []
    assert "open" not in calls
    assert "scandir" not in calls
    assert len(calls) < 15
