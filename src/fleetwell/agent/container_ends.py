"""Hears containers with GPUs end, by the files that the kubelet and the container runtime keep on this node.

The agent has no rights on pods, but it sees the host's tree: who holds GPUs (:mod:`~fleetwell.agent.gpu_holders`),
which container of which pod an id is (``/var/log/containers/POD_NAMESPACE_NAME-ID.log``, a link that the kubelet makes
when the container has begun, into ``/var/log/pods/NAMESPACE_POD_UID/NAME``: Kubernetes, ``kuberuntime/legacy.go``), and
how it ended (:mod:`~fleetwell.agent.runtime_files`). Only containers that hold GPUs are followed, and only until they
have ended, so that a scan is a few system calls, whatever else runs on the node.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from fleetwell.agent import host_files
from fleetwell.agent.gpu_holders import GpuHolders
from fleetwell.agent.kubelet_files import kubelet_folder
from fleetwell.agent.runtime_files import RUNTIMES, Run, RunFile, find, under

LOGS: Final = "var/log/containers"
CONTAINERS: Final = 4096
"""Links that are looked at: of all containers of the node, those that ended and still have their logs among them."""
FOLLOWED: Final = 512
"""Containers with GPUs; seven MIG devices on each of eight GPUs make 56, and some have ended before."""
READ_AT_ONCE: Final = 32
"""Files that one scan reads; the others wait for the next one."""

_ID = re.compile(r"-([0-9a-f]{64})\.log\Z")
_PLACE = re.compile(r"/[^/_]+_[^/_]+_([0-9a-f-]{32,36})/([a-z0-9-]{1,63})/[^/]+\Z")
"""The end of a link's target: namespace, pod, UID (a static pod's is a hash), container, and the log of one run."""


class Ended(NamedTuple):
    """A container that held GPUs and ended after the agent began."""

    pod: str
    container: str
    run: Run


class _Followed:
    """A container that holds GPUs and is not known to have ended."""

    def __init__(self, pod: str, container: str, file: RunFile) -> None:
        self.pod = pod
        self.container = container
        self.file = file
        self.sign: host_files.Sign | None = None
        """Of the file when it was last read."""
        self.ran = False
        """It was seen before its end: that is news then, whatever the clock says."""


class Scanner:
    """Finds what has ended since the last scan; what the first one finds ended is old.

    :param host_root: the host's tree.
    :param runtime_root: where the runtime keeps its data, where that is none of the usual places.
    """

    def __init__(self, host_root: Path, runtime_root: Path | None = None) -> None:
        self.unknown = 0
        """Containers with GPUs of which no runtime that we know keeps a file."""
        self._root = str(host_root)
        self._runtimes = (*under(runtime_root), *RUNTIMES)
        self._holders = GpuHolders()
        self._names = host_files.Names()
        self._places: dict[str, tuple[str, str] | None] = {}
        """By a container's id its pod and its name; None where the link leads elsewhere."""
        self._followed: dict[str, _Followed] = {}
        self._over: set[str] = set()
        self._full = False
        """Some are not followed yet, since too many are."""
        self._began = time.time()
        self._first = True

    @property
    def follows(self) -> bool:
        """Whether there are containers with GPUs that have not ended."""
        return bool(self._followed)

    def scan(self) -> list[Ended]:
        """Look once."""
        first, self._first = self._first, False
        self._find()
        ended = []
        for id_, one, run in self._read():
            if not run.finished:
                one.ran = True
                continue
            del self._followed[id_]
            self._over.add(id_)
            if one.ran or (not first and run.finished >= self._began):
                ended.append(Ended(one.pod, one.container, run))
        return ended

    def _read(self) -> Iterator[tuple[str, _Followed, Run]]:
        """Read the files that were written since the last scan."""
        left = READ_AT_ONCE
        for id_, one in tuple(self._followed.items()):
            sign = host_files.sign(one.file.path)
            if sign is None:
                if id_ not in self._places:  # The kubelet has removed its link, and then the runtime its file.
                    del self._followed[id_]
            elif sign != one.sign and left:
                left -= 1
                one.sign = sign
                run = one.file.read()
                if run is not None:
                    yield id_, one, run

    def _find(self) -> None:
        """Bring up to date which containers are followed."""
        try:
            changed = self._holders.read(kubelet_folder(self._root))
            folder = host_files.inside(self._root, LOGS)
            if self._names.read(folder, CONTAINERS):
                self._place(folder)
                changed = True
        except OSError:
            return  # There is no kubelet yet.
        if changed or self._full:
            self._follow()

    def _place(self, folder: str) -> None:
        """Tell whose the containers are that have a link now."""
        before, self._places = self._places, {}
        for name in self._names.now:
            found = _ID.search(name)
            if found is not None:
                id_ = found.group(1)
                self._places[id_] = before[id_] if id_ in before else _place_of(f"{folder}/{name}")
        self._over &= self._places.keys()

    def _follow(self) -> None:
        self.unknown, self._full = 0, False
        for id_, place in self._places.items():
            if place is None or id_ in self._over or id_ in self._followed or not self._holders.hold(*place):
                continue
            file = find(self._root, self._runtimes, id_)
            if file is None:
                self.unknown += 1
            elif len(self._followed) < FOLLOWED:
                self._followed[id_] = _Followed(*place, file)
            else:
                self._full = True


def _place_of(link: str) -> tuple[str, str] | None:
    """Give the pod's UID and the container's name, by where the kubelet's link leads; nobody follows it."""
    try:
        found = _PLACE.search(os.readlink(link))  # noqa: PTH115 (for each container of the node)
    except OSError:
        return None
    return (found.group(1), found.group(2)) if found is not None else None
