"""Hears the jobs that only leave a last word: the termination messages that the kubelet keeps on its node.

The agent has no rights on pods, but it sees the host's tree, where each container's message is a file until its pod is
gone: made empty when the container begins, and written in place, so that no directory tells of it. What is written
there is hostile: no more of it is read than Kubernetes keeps, and it leads to a look at the hardware at most.

Files are looked at in a thread of its own that dies with the process: a disk that hangs must not hang the agent.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import structlog

from fleetwell.agent.job_reports import JobReport, Reporter, Trouble

log = structlog.get_logger(__name__)

FOLDER = "var/lib/kubelet/pods"
EVERY = 5.0
"""Seconds between two scans."""
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
SETTLED = 1_000_000_000
"""Nanoseconds after which the time of a directory's last change would be another one for another change."""

_HARDWARE = re.compile(
    r"CUDA error|CUDA driver|cudaError|CUBLAS_STATUS|CUDNN_STATUS|CUFFT_|NCCL|NVML|NVLink|NVSwitch|\bECC\b|\bXid\b"
    r"|HIP error|GPU (?:is|was|has been) lost|fallen off the bus|no CUDA-capable device|No CUDA GPUs"
    r"|unspecified launch failure|illegal memory access|libfabric|\bEFA\b|ibv_|\bSIG(?:SEGV|BUS|ILL|FPE|ABRT)\b"
    r"|segmentation fault|bus error|illegal instruction",
    re.IGNORECASE,
)
_THE_SCRIPTS_OWN = re.compile(r"out of memory|device-side assert|invalid configuration argument", re.IGNORECASE)


class Message(NamedTuple):
    """A message that was written after the agent began, and the end of what it says."""

    pod: str
    container: str
    said: bytes


class Word(msgspec.Struct, frozen=True):
    """What ``fleetwell run`` writes."""

    reason: str
    generation: int
    rank: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None
    code: Annotated[int, msgspec.Meta(ge=-255, le=255)] | None = None
    cause: str = ""
    evidence: str = ""


def report_of(said: bytes) -> JobReport | None:
    """Give what a message reports; None where nothing in it suggests the hardware."""
    try:
        word = msgspec.json.decode(said, type=Word)
    except (
        ValueError,
        RecursionError,
    ):  # The last one: brackets in brackets in brackets.
        return _foreign(said.decode(errors="replace"))
    if not word.code or word.reason == "drain":
        return None
    told = word.evidence or word.cause
    return JobReport(kind=Trouble.WORKER_DIED, rank=word.rank, exit_code=word.code, evidence=told)


def _foreign(text: str) -> JobReport | None:
    for line in text.splitlines():
        found = _HARDWARE.search(line)
        if found is not None and not _THE_SCRIPTS_OWN.search(line):
            return JobReport(kind=Trouble.WORKER_DIED, evidence=line[max(0, found.start() - 80) :])
    return None


class _Names:
    """The names in a directory, listed when it has changed."""

    def __init__(self) -> None:
        self.now: tuple[str, ...] = ()
        self._changed = -1

    def read(self, folder: str, limit: int) -> bool:
        """Read them; tell whether they were listed anew.

        :raises OSError: it is not there, or no directory.
        """
        status = os.lstat(folder)
        if status.st_mtime_ns == self._changed:
            return False
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(folder)
        with os.scandir(folder) as entries:
            self.now = tuple(entry.name for entry in islice(entries, limit))
        settled = time.time_ns() - status.st_mtime_ns > SETTLED
        self._changed = status.st_mtime_ns if settled else -1
        return True


class _Container:
    """The messages of one container.

    :param since: messages up to this time, in nanoseconds since the epoch, are old.
    """

    def __init__(self, since: int) -> None:
        self._names = _Names()
        self._since = since
        self._followed: dict[str, tuple[int, int]] = {}

    def written(self, folder: str) -> list[str]:
        """Give the files that were written since the last call."""
        if not self._names.read(folder, FILES):
            return [name for name in tuple(self._followed) if self._changed(folder, name)]
        before, found = self._followed, {}
        for name in self._names.now:
            sign = _sign(f"{folder}/{name}")
            if sign is not None:
                found[name] = sign
        self._followed = dict(sorted(found.items(), key=lambda one: one[1], reverse=True)[:FOLLOWED])
        new = [
            name
            for name, sign in self._followed.items()
            if sign[1] and (sign != before[name] if name in before else sign[0] > self._since)
        ]
        self._since = max(self._since, *(at for at, _ in self._followed.values()), 0)
        return new

    def _changed(self, folder: str, name: str) -> bool:
        sign = _sign(f"{folder}/{name}")
        if sign is None or sign == self._followed[name]:
            return False
        self._followed[name] = sign
        self._since = max(self._since, sign[0])
        return sign[1] > 0


class _Pod:
    def __init__(self) -> None:
        self.names = _Names()
        self.containers: dict[str, _Container] = {}


class Scanner:
    """Finds the messages that were written since the last scan; those that the first one finds are old.

    :param host_root: the host's tree.
    """

    def __init__(self, host_root: Path) -> None:
        self.dropped = 0
        """Messages that were not read, since too many came at once."""
        self._root = host_root / FOLDER
        self._names = _Names()
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
            said = _read(path)
            if said:
                messages.append(Message(pod, container, said))
        return messages

    def _written(self) -> Iterator[tuple[str, str, str]]:
        root = os.path.realpath(self._root)
        try:
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


def _sign(path: str) -> tuple[int, int] | None:
    """Give what changes when a file is written: time and size; None for what is no regular file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _read(path: str) -> bytes:
    """Read the end of a file, as the kubelet does; nothing where it is gone, or no regular file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return b""
        return os.pread(file, MESSAGE_LIMIT, max(0, status.st_size - MESSAGE_LIMIT))
    except OSError:
        return b""
    finally:
        os.close(file)


class TerminationMessages:
    """Makes reports of the messages that suggest the hardware.

    :param heard: takes a report, within the allowance of its pod, and has the probes look.
    :param too_many: takes the number of messages that were not read.
    """

    def __init__(
        self,
        host_root: Path,
        heard: Callable[[Reporter, JobReport], Awaitable[None]],
        too_many: Callable[[int], None],
        *,
        every: float = EVERY,
    ) -> None:
        self._scanner = Scanner(host_root)
        self._heard = heard
        self._too_many = too_many
        self._every = every

    async def run(self) -> None:
        """Scan until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._every)

    async def look(self) -> None:
        """Scan once, and wait for the looks that come of it."""
        messages, dropped = await _in_thread(self._scan)
        if dropped:
            log.warning("too many termination messages at once; some were not read", number=dropped)
            self._too_many(dropped)
        reports = []
        for one in messages:
            report = report_of(one.said)
            if report is not None:
                reporter = Reporter(name=f"termination message of pod {one.pod}, {one.container}", key=one.pod)
                reports.append(self._heard(reporter, report))
        await asyncio.gather(*reports)

    def _scan(self) -> tuple[list[Message], int]:
        messages = self._scanner.scan()
        dropped, self._scanner.dropped = self._scanner.dropped, 0
        return messages, dropped


async def _in_thread(scan: Callable[[], tuple[list[Message], int]]) -> tuple[list[Message], int]:
    """Wait for a scan; not by the loop's own threads, for which the end of the process would wait, too."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[list[Message], int]] = loop.create_future()

    def settle(found: tuple[list[Message], int] | Exception) -> None:
        if done.done():
            return
        if isinstance(found, Exception):
            done.set_exception(found)
        else:
            done.set_result(found)

    def work() -> None:
        try:
            found: tuple[list[Message], int] | Exception = scan()
        except Exception as error:  # noqa: BLE001 (whatever it is, it is raised where the scan is awaited)
            found = error
        try:
            loop.call_soon_threadsafe(settle, found)
        except RuntimeError:
            return  # The loop is closed: nobody waits any more.

    try:
        threading.Thread(target=work, name="termination messages", daemon=True).start()
    except RuntimeError as error:
        log.warning("termination messages are not looked at; the next scan is tried", why=str(error))
        return [], 0
    return await done
