"""Finds the termination messages that the kubelet keeps on its node.

The agent has no rights on pods, but it sees the host's tree, where each container's message is a file until its pod is
gone: made empty when the container begins, and written in place, so that no directory tells of it. What is written
there is hostile: no more of it is read than Kubernetes keeps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fleetwell.agent import host_files
from fleetwell.agent.host_files import Names, Sign, sign
from fleetwell.agent.kubelet_files import kubelet_folder

FOLDER = "pods"
"""Of the kubelet."""
MESSAGE_LIMIT = 4096
"""Bytes, from the end, that Kubernetes keeps of a message."""
PODS = 512
CONTAINERS = 32
"""Of one pod, its init containers among them."""
ALL_CONTAINERS = 1024
FILES = 2048
"""Of one container. Each restart leaves one, for as long as the pod lives; they are listed when there is another."""
FOLLOWED = 2
"""Of those: a container writes to its newest one only."""
READ_AT_ONCE = 32
"""Messages of one scan; the others wait for the next one."""
WAITING = 256


class Message(NamedTuple):
    """A message that was written after the agent began, and the end of what it says."""

    pod: str
    container: str
    at: float
    """When it was written, in seconds since the epoch."""
    said: bytes


class _Container:
    """The messages of one container.

    :param since: messages up to this time, in nanoseconds since the epoch, are old.
    """

    def __init__(self, since: int) -> None:
        self._names = Names()
        self._since = since
        self._followed: dict[str, Sign] = {}

    def written(self, folder: str) -> list[str]:
        """Give the files that were written since the last call."""
        if not self._names.read(folder, FILES):
            return [name for name in tuple(self._followed) if self._changed(folder, name)]
        before, found = self._followed, {}
        for name in self._names.now:
            status = sign(f"{folder}/{name}")
            if status is not None:
                found[name] = status
        self._followed = dict(sorted(found.items(), key=lambda one: one[1], reverse=True)[:FOLLOWED])
        new = [
            name
            for name, now in self._followed.items()
            if now.size and (now != before[name] if name in before else now.changed > self._since)
        ]
        self._since = max(self._since, *(now.changed for now in self._followed.values()), 0)
        return new

    def _changed(self, folder: str, name: str) -> bool:
        now = sign(f"{folder}/{name}")
        if now is None or now == self._followed[name]:
            return False
        self._followed[name] = now
        self._since = max(self._since, now.changed)
        return now.size > 0


class _Pod:
    def __init__(self) -> None:
        self.names = Names()
        self.containers: dict[str, _Container] = {}


class Scanner:
    """Finds the messages that were written since the last scan; those that the first one finds are old.

    :param host_root: the host's tree.
    """

    def __init__(self, host_root: Path) -> None:
        self.dropped = 0
        """Messages that were not read, since too many came at once."""
        self._root = str(host_root)
        self._names = Names()
        self._pods: dict[str, _Pod] = {}
        self._waiting: deque[tuple[str, str, str]] = deque()
        self._began = time.time_ns()
        self._first = True

    def scan(self) -> list[Message]:
        """Look once."""
        first, self._first = self._first, False
        for found in self._written():
            if first:
                continue
            if len(self._waiting) < WAITING:
                self._waiting.append(found)
            else:
                self.dropped += 1
        messages = []
        for _ in range(min(READ_AT_ONCE, len(self._waiting))):
            pod, container, path = self._waiting.popleft()
            written = sign(path)
            said = host_files.end_of(path, MESSAGE_LIMIT)
            if written is not None and said:
                messages.append(Message(pod, container, written.changed / 1e9, said))
        return messages

    def _written(self) -> Iterator[tuple[str, str, str]]:
        try:
            root = f"{kubelet_folder(self._root)}/{FOLDER}"
            listed = self._names.read(root, PODS)
        except OSError:
            return  # There is no kubelet yet.
        if listed:
            self._pods = {uid: self._pods.get(uid) or _Pod() for uid in self._names.now}
        left = ALL_CONTAINERS
        for uid, pod in self._pods.items():
            folder = f"{root}/{uid}/containers"
            try:
                if pod.names.read(folder, CONTAINERS):
                    known = pod.containers
                    pod.containers = {name: known.get(name) or _Container(self._began) for name in pod.names.now}
            except OSError:
                continue  # No container of it has begun, or it is gone.
            for name, container in islice(pod.containers.items(), left):
                left -= 1
                try:
                    written = container.written(f"{folder}/{name}")
                except OSError:
                    continue
                for file in written:
                    yield uid, name, f"{folder}/{name}/{file}"
