"""The files that a kubelet and a container runtime keep on a node, as the real ones write them.

The forms were taken from what their own code wrote: containerd 2.4's ``StoreStatus`` and ``UpdateSync``, Kubernetes
1.37's device-plugin and DRA checkpoints; CRI-O's from the declaration of its ``ContainerState``.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path

UID = "5f0c9f5e-1f2a-4b7e-9d2a-6d1b5f3c2a10"
CONTAINERD = "var/lib/containerd/io.containerd.grpc.v1.cri/containers"
CRIO = "var/lib/containers/storage/overlay-containers"
NANO = 1_000_000_000


def id_of(name: str) -> str:
    """Give a container's id, 64 hex digits, by any short name."""
    return name.encode().hex().ljust(64, "0")


def write(path: Path, text: str) -> None:
    """Write a file as these programs do: anew, and renamed over the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".tmp-{path.name}")
    new.write_text(text)
    new.replace(path)


def containerd_status(started: float, finished: float = 0.0, code: int = 0, reason: str = "") -> str:
    """Write what containerd keeps of a container."""
    status = {
        "Version": "v1",
        "Pid": 0 if finished else 4711,
        "CreatedAt": int(started * NANO),
        "StartedAt": int(started * NANO),
        "FinishedAt": int(finished * NANO),
        "ExitCode": code,
        "Reason": reason,
        "Message": "",
        "Resources": {"linux": {"cpu_period": 100000, "cpu_shares": 2, "oom_score_adj": 1000}},
    }
    return json.dumps(status, separators=(",", ":"))


def crio_state(started: float, finished: float = 0.0, code: int = 0, *, oom: bool = False) -> str:
    """Write what CRI-O keeps of a container: Go writes the zero time as year 1."""

    def moment(at: float) -> str:
        if not at:
            return "0001-01-01T00:00:00Z"
        return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"

    state = {
        "ociVersion": "1.2.1",
        "id": id_of("main"),
        "status": "stopped" if finished else "running",
        "pid": 0 if finished else 4711,
        "bundle": "/run/containers/storage/overlay-containers/x/userdata",
        "annotations": {"io.kubernetes.container.name": "main"},
        "created": moment(started),
        "started": moment(started),
        "finished": moment(finished),
        **({"exitCode": code} if finished else {}),
        **({"oomKilled": True} if oom else {}),
        "initPid": 4711,
        "initStartTime": "8813",
    }
    return json.dumps(state) + "\n"


class NodeTree:
    """One node's disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.holders: list[dict[str, object]] = []

    def give_gpus(self, pod: str = UID, container: str = "main", resource: str = "nvidia.com/gpu") -> None:
        """Have the kubelet note that a container got devices of a plugin."""
        self.holders.append(
            {
                "PodUID": pod,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {"0": ["GPU-1"], "1": ["GPU-2"]},
                "AllocResp": "AQID",
            }
        )
        self.note_holders()

    def note_holders(self) -> None:
        """Write the kubelet's checkpoint."""
        data = {"PodDeviceEntries": self.holders, "RegisteredDevices": {"nvidia.com/gpu": ["GPU-1", "GPU-2"]}}
        path = self.root / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
        write(path, json.dumps({"Data": data, "Checksum": 95787429}))

    def give_claim(self, pod: str = UID, driver: str = "gpu.nvidia.com") -> None:
        """Have the kubelet note that a pod has a claim."""
        device = {"PoolName": "n", "DeviceName": "gpu-0", "ShareID": None, "RequestNames": ["gpu"], "CDIDeviceIDs": []}
        claim = {
            "ClaimUID": "c1",
            "ClaimName": "gpus",
            "Namespace": "ml",
            "PodUIDs": {pod: {}},
            "DriverState": {driver: {"Devices": [device]}},
        }
        data = {
            "kind": "DRACheckpoint",
            "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
            "ClaimInfoStateList": [claim],
        }
        text = json.dumps({"Data": json.dumps(data), "Checksum": 1758702019})
        write(self.root / "var/lib/kubelet/dra_manager_state", text)

    def link(self, name: str = "main", pod: str = UID, container: str = "main") -> Path:
        """Make the link by which a container's id tells its pod."""
        path = self.root / f"var/log/containers/train-0_ml_{container}-{id_of(name)}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(f"/var/log/pods/ml_train-0_{pod}/{container}/0.log")
        return path

    def status(self, name: str = "main") -> Path:
        """Give where containerd keeps what it knows of a container."""
        return self.root / CONTAINERD / id_of(name) / "status"

    def start(self, name: str = "main", pod: str = UID, container: str = "main", *, ago: float = 60.0) -> None:
        """Begin a container, in the order of the kubelet: its runtime's file, then the link."""
        write(self.status(name), containerd_status(time.time() - ago))
        self.link(name, pod, container)

    def end(self, code: int, name: str = "main", *, ago: float = 0.0, ran: float = 60.0, reason: str = "") -> None:
        """End it."""
        finished = time.time() - ago
        write(self.status(name), containerd_status(finished - ran, finished, code, reason))

    def remove(self, name: str = "main") -> None:
        """Remove what there is of it, as the kubelet does: the link, then the runtime's file."""
        for link in (self.root / "var/log/containers").glob(f"*-{id_of(name)}.log"):
            link.unlink()
        self.status(name).unlink()
        self.status(name).parent.rmdir()
