"""What a container leaves on its node's disk, as containerd and the kubelet write it.

- ``var/lib/containerd/io.containerd.grpc.v1.cri/containers/ID/status``: when it began and ended, and with which code;
- ``var/log/pods/NAMESPACE_POD_UID/NAME/ATTEMPT.log``: its log, which is a link here, as where Docker is the runtime;
- ``var/log/containers/POD_NAMESPACE_NAME-ID.log``: a link to that, which tells whose container an id is.

They outlive the container: the kubelet keeps its last run, and all of it goes with the pod.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
from pathlib import Path

import msgspec

from fleetwell.kube.objects import Pod

_CRI = "var/lib/containerd/io.containerd.grpc.v1.cri/containers"
_LINKS = "var/log/containers"
_LOGS = "var/log/pods"
_UNKNOWN_CODE, _UNKNOWN_REASON = 255, "Unknown"
_ID = re.compile(r"-([0-9a-f]{64})\.log\Z")


class Status(msgspec.Struct, rename="pascal"):
    """containerd's notes on a container; times in nanoseconds since the epoch, 0 for what did not happen yet."""

    version: str = "v1"
    pid: int = 0
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    """Empty for an end like any other: that it was an ``Error`` the kubelet is told when it asks."""
    message: str = ""


class ContainerRecord:
    """The files of one run of a container.

    :param root: the node's host tree.
    """

    def __init__(self, root: Path, pod: Pod, container: str, attempt: int) -> None:
        self.id = secrets.token_hex(32)
        self._root = root
        self._pod = pod
        self._container = container
        self._attempt = attempt
        self._status = Status(created_at=time.time_ns())

    def began(self, pid: int, log: Path) -> None:
        """Note that it runs: first the runtime does, then the kubelet makes its link.

        :param log: where the lab has its output.
        """
        for old in _of(self._root, self._pod.metadata.uid, self._container)[:-1]:
            _remove(self._root, old)
        self._status.pid, self._status.started_at = pid, time.time_ns()
        _write(self._root, self.id, self._status)
        meta = self._pod.metadata
        place = Path("/", _LOGS, _folder(self._pod), self._container, f"{self._attempt}.log")
        here = self._root / place.relative_to("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.unlink(missing_ok=True)
        here.symlink_to(log)
        link = self._root / _LINKS / f"{meta.name}_{meta.namespace}_{self._container}-{self.id}.log"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)

    def ended(self, code: int) -> None:
        """Note that it has ended."""
        self._status.pid, self._status.exit_code, self._status.finished_at = 0, code, time.time_ns()
        _write(self._root, self.id, self._status)


def forget(root: Path, pod: Pod) -> None:
    """Remove what there is of a pod that is gone."""
    for link in _of(root, pod.metadata.uid):
        _remove(root, link)
    shutil.rmtree(root / _LOGS / _folder(pod), ignore_errors=True)


def power_came_back(root: Path) -> None:
    """Note of all that ran when the power went that nobody knows how it ended, as containerd does when it starts."""
    for file in (root / _CRI).glob("*/status"):
        status = msgspec.json.decode(file.read_bytes(), type=Status)
        if not status.finished_at:
            status.pid, status.finished_at = 0, time.time_ns()
            status.exit_code, status.reason = _UNKNOWN_CODE, _UNKNOWN_REASON
            _write(root, file.parent.name, status)


def _folder(pod: Pod) -> str:
    return f"{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid}"


def _of(root: Path, uid: str, container: str = "*") -> list[Path]:
    """Give the links to the runs of a pod's containers, the oldest first."""
    found = [link for link in (root / _LINKS).glob("*.log") if link.readlink().match(f"*_{uid}/{container}/*.log")]
    return sorted(found, key=lambda link: link.lstat().st_mtime_ns)


def _remove(root: Path, link: Path) -> None:
    found = _ID.search(link.name)
    link.unlink()
    if found is not None:
        shutil.rmtree(root / _CRI / found.group(1), ignore_errors=True)


def _write(root: Path, container: str, status: Status) -> None:
    folder = root / _CRI / container
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".tmp-status"
    new.write_bytes(msgspec.json.encode(status))
    new.chmod(0o600)
    new.replace(folder / "status")
