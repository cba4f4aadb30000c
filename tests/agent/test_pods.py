"""Whose process a kernel line names: cgroups in every form, processes that are gone, numbers that were given anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetwell.agent import pods
from fleetwell.agent.pods import Owners, pod_of
from fleetwell.health.kernel_log import KernelLogReader
from fleetwell.health.vocabulary import Observation

UID = "5f0c9f5e-1f2a-4b7e-9d2a-6d1b5f3c2a10"
UNDER = UID.replace("-", "_")
OTHER = "11111111-2222-3333-4444-555555555555"
STATIC = "0123456789abcdef0123456789abcdef"
BOOT = 1_000_000.0


class Proc:
    """A process filesystem that holds what a test put there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, pid: int, cgroup: str, *, started: float = 0.0, name: str = "python") -> None:
        folder = self.root / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup").write_text(cgroup)
        ticks = int(started * os.sysconf("SC_CLK_TCK"))
        (folder / "stat").write_text(f"{pid} ({name}) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {ticks} 1 1\n")

    def end(self, pid: int) -> None:
        for name in ("cgroup", "stat"):
            (self.root / str(pid) / name).unlink()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def fault(pid: int, at: float = 100.0, xid: int = 31) -> tuple[Observation, ...]:
    text = f"NVRM: Xid (PCI:0000:05:00): {xid}, pid={pid}, name=python, MMU Fault"
    return KernelLogReader(boot_time=BOOT).read(text, BOOT + at)


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/cri-containerd-ab.scope",
            UID,
        ),
        (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-ab.scope", UID),
        (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-ab.scope/container", UID),
        (f"0::/kubepods/besteffort/pod{UID}/0123456789abcdef", UID),
        (f"0::/kubepods/pod{UID}/ab", UID),
        (f"0::/system.slice/containerd.service/kubepods-burstable-pod{UNDER}.slice:cri-containerd:ab", UID),
        (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/cri-containerd-ab.scope", UID),
        (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-ab.scope (deleted)", UID),
        (f"0::/../../kubepods-besteffort-pod{UNDER}.slice/cri-containerd-ab.scope", UID),
        (f"0::/../../pod{UID}/ab", UID),
        (f"0::/kubepods.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-ab.scope", STATIC),
        (f"12:devices:/kubepods/burstable/pod{UID}/ab\n11:memory:/kubepods/burstable/pod{UID}/ab\n0::/\n", UID),
        (f"2:name=systemd:/\n1:cpu,cpuacct:/kubepods.slice/kubepods-pod{UNDER}.slice/docker-ab.scope\n", UID),
        ("0::/system.slice/nvidia-dcgm.service", ""),
        ("0::/", ""),
        ("", ""),
    ],
)
def test_the_pod_is_read_from_every_form_of_cgroup(proc: Proc, cgroup: str, uid: str) -> None:
    proc.put(42, cgroup)
    assert pod_of(proc.root, 42) == uid


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/user.slice/pod{OTHER}/x",
        f"0::/kubepods/pod{UID}/ab/kubepods/pod{OTHER}",
        f"0::/kubepods/pod{UID}/ab/pod{OTHER}.slice",
        f"0::/kubepods/burstable/pod{UID}/kubepods-pod{OTHER}.slice:cri-containerd:x",
    ],
)
def test_a_container_cannot_pass_for_another_pod_by_the_cgroups_that_it_makes(proc: Proc, cgroup: str) -> None:
    proc.put(42, cgroup)
    assert pod_of(proc.root, 42) in {UID, ""}


def test_hostile_content_is_read_in_part_and_never_fails(proc: Proc) -> None:
    proc.put(42, "x" * (10 * pods.READ_LIMIT) + f"\n0::/kubepods/pod{UID}/ab")
    assert pod_of(proc.root, 42) == ""
    (proc.root / "42/cgroup").write_bytes(b"\xff\xfe\x00:::" * 1000)
    assert pod_of(proc.root, 42) == ""
    assert pod_of(proc.root, 43) is None
    (proc.root / "44/cgroup").mkdir(parents=True)
    assert pod_of(proc.root, 44) is None


def test_the_owner_of_a_line_is_its_pod(proc: Proc) -> None:
    proc.put(42, f"0::/kubepods/pod{UID}/ab")
    assert Owners(proc.root, lambda: BOOT).of(fault(42)) == {42: f"pod {UID}"}


def test_a_service_of_the_host_is_one_owner_whatever_its_process(proc: Proc) -> None:
    for pid in (42, 43):
        proc.put(pid, "0::/system.slice/slurmd.service")
    owners = Owners(proc.root, lambda: BOOT).of((*fault(42), *fault(43)))
    assert owners == dict.fromkeys((42, 43), "cgroup /system.slice/slurmd.service")


def test_a_process_that_is_gone_counts_for_nobody(proc: Proc) -> None:
    assert Owners(proc.root, lambda: BOOT).of(fault(42)) == {42: pods.NOBODY}


def test_a_process_that_was_seen_is_known_for_its_later_lines_and_not_for_ever(proc: Proc) -> None:
    now = [0.0]
    owners = Owners(proc.root, lambda: BOOT, monotonic=lambda: now[0])
    proc.put(42, f"0::/kubepods/pod{UID}/ab")
    owners.of(fault(42))
    proc.end(42)
    assert owners.of(fault(42, xid=13)) == {42: f"pod {UID}"}
    now[0] += pods.KEPT_FOR + 1
    assert owners.of(fault(42)) == {42: pods.NOBODY}


def test_a_number_that_was_given_anew_since_the_line_is_nobodys(proc: Proc) -> None:
    proc.put(42, f"0::/kubepods/pod{OTHER}/ab", started=200.0, name="a) S 1 (b")
    assert Owners(proc.root, lambda: BOOT).of(fault(42, at=100.0)) == {42: pods.NOBODY}
    assert Owners(proc.root, lambda: BOOT).of(fault(42, at=300.0)) == {42: f"pod {OTHER}"}


def test_only_what_counts_by_owner_is_looked_up_and_a_flood_only_in_part(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(pods, "pod_of", lambda _proc, pid: looked.append(pid))
    owners = Owners(proc.root, lambda: BOOT)
    assert owners.of(fault(1, xid=79) + fault(2, xid=43)) == {}
    many = tuple(one for pid in range(1, 1001) for one in fault(pid))
    assert len(owners.of(many)) == 1000
    assert len(looked) == pods.LOOKUPS


def test_what_is_remembered_is_bounded(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "KEPT", 10)
    owners = Owners(proc.root, lambda: BOOT)
    for pid in range(1, 31):
        proc.put(pid, f"0::/kubepods/pod{UID}/ab")
        owners.of(fault(pid))
    assert len(owners._known) == 10
