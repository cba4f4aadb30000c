"""Which containers hold GPUs, by the kubelet's own notes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.node_tree import UID, NodeTree, write
from fleetwell.agent import gpu_holders
from fleetwell.agent.gpu_holders import CLAIMS, DEVICE_PLUGINS, LIMIT, GpuHolders

OTHER = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path)


def kubelet(tree: NodeTree) -> str:
    return str(tree.root / "var/lib/kubelet")


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"])
def test_a_container_that_got_gpus_from_a_plugin_holds_them_and_its_neighbour_does_not(
    tree: NodeTree, resource: str
) -> None:
    tree.give_gpus(resource=resource)
    holders = GpuHolders()
    assert holders.read(kubelet(tree))
    assert holders.hold(UID, "main")
    assert not holders.hold(UID, "sidecar")
    assert not holders.hold(OTHER, "main")


@pytest.mark.parametrize("resource", ["vpc.amazonaws.com/efa", "nvidia.com/hostdev", "nvidia.com/gpus"])
def test_other_devices_are_no_gpus(tree: NodeTree, resource: str) -> None:
    tree.give_gpus(resource=resource)
    holders = GpuHolders()
    holders.read(kubelet(tree))
    assert not holders.hold(UID, "main")


def test_by_a_claim_every_container_of_the_pod_holds_them(tree: NodeTree) -> None:
    tree.give_claim()
    holders = GpuHolders()
    assert holders.read(kubelet(tree))
    assert holders.hold(UID, "whichever")
    tree.give_claim(OTHER, "compute-domain.nvidia.com")
    assert holders.read(kubelet(tree))
    assert not holders.hold(UID, "whichever")
    assert not holders.hold(OTHER, "whichever")


def test_the_notes_are_read_when_they_are_written_anew(tree: NodeTree) -> None:
    holders = GpuHolders()
    assert not holders.read(kubelet(tree))
    tree.give_gpus()
    assert holders.read(kubelet(tree))
    assert not holders.read(kubelet(tree))
    tree.holders.clear()
    tree.note_holders()
    assert holders.read(kubelet(tree))
    assert not holders.hold(UID, "main")


@pytest.mark.parametrize("name", [DEVICE_PLUGINS, CLAIMS])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"Data": 7}',
        '{"Data": "["}',
        '{"Data": {"PodDeviceEntries": [{"PodUID": 7}]}}',
        json.dumps({"Data": '{"ClaimInfoStateList": [{"PodUIDs": []}]}'}),
        '{"x": ' + "[" * 5000,
        json.dumps({"Data": '{"x": ' + "[" * 5000}),
        " " * (LIMIT + 1),
    ],
)
def test_notes_that_cannot_be_read_leave_the_holders_as_they_were(tree: NodeTree, name: str, text: str) -> None:
    tree.give_gpus()
    tree.give_claim(OTHER)
    holders = GpuHolders()
    holders.read(kubelet(tree))
    write(Path(kubelet(tree)) / name, text)
    assert not holders.read(kubelet(tree))
    assert holders.hold(UID, "main")
    assert holders.hold(OTHER, "main")


@pytest.mark.parametrize("text", ['{"Data": {"PodDeviceEntries": null}}', '{"Data": {}}'])
def test_a_node_without_holders_has_none(tree: NodeTree, text: str) -> None:
    tree.give_gpus()
    holders = GpuHolders()
    holders.read(kubelet(tree))
    write(Path(kubelet(tree)) / DEVICE_PLUGINS, text)
    assert holders.read(kubelet(tree))
    assert not holders.hold(UID, "main")


def test_no_more_are_known_than_a_node_can_have(tree: NodeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_holders, "MANY", 2)
    for number in range(3):
        tree.give_gpus(container=f"c{number}")
    holders = GpuHolders()
    holders.read(kubelet(tree))
    assert [holders.hold(UID, f"c{number}") for number in range(3)] == [True, True, False]
