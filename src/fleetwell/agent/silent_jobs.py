"""Hears the jobs that tell the agent nothing: by the message that they leave, else by the code that they end with.

A container that leaves both is reported once. Its message goes first, since it says more; and where it explains the
end (a drain, a script that wanted too much memory), the code has nothing to add.

Files are looked at in a thread of its own that dies with the process: a disk that hangs must not hang the agent.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import structlog

from fleetwell.agent import container_ends, exit_codes, last_words, termination_messages
from fleetwell.agent.container_ends import Ended
from fleetwell.agent.job_reports import JobReport, Reporter, Way
from fleetwell.agent.termination_messages import Message

log = structlog.get_logger(__name__)

ENDS_EVERY = 1.0
"""Seconds between two scans for containers that ended, while one with GPUs runs: where a job is begun anew at once,
what its old pod left is gone after a few seconds."""
MESSAGES_EVERY = 5.0
"""Seconds between two scans for messages, which look at all pods; one follows whenever a container has ended, too. Also
between two scans for ends while nobody has GPUs."""
REMEMBERED = 1024
"""Containers of which we know that they were heard."""
SLACK = 1.0
"""Seconds by which a message may seem older than its container: the runtime notes the start when it has happened, and a
file's time is that of the kernel's last tick."""


class Found(NamedTuple):
    """What a scan found."""

    messages: list[Message]
    ended: list[Ended]
    dropped: int = 0
    """Messages that were not read, since too many came at once."""


class SilentJobs:
    """Makes reports of the messages and the ends that suggest the hardware.

    :param runtime_root: where the container runtime keeps its data, where that is none of the usual places.
    :param heard: takes a report, within the allowance of its pod, and has the probes look.
    :param too_many: takes the way and the number of what was not read.
    """

    def __init__(
        self,
        host_root: Path,
        heard: Callable[[Reporter, JobReport], Awaitable[None]],
        too_many: Callable[[Way, int], None],
        *,
        runtime_root: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._messages = termination_messages.Scanner(host_root)
        self._ends = container_ends.Scanner(host_root, runtime_root)
        self._heard = heard
        self._too_many = too_many
        self._monotonic = monotonic
        self._messages_due = monotonic()
        self._explained = _Times()
        """When a container's message was written that says why it ends."""
        self._ended = _Times()
        """When a container ended whose code was reported."""
        self._deaf = False
        self._scans = _Scans(self._scan)

    async def run(self) -> None:
        """Scan until cancelled."""
        try:
            async with asyncio.TaskGroup() as looks:
                while True:
                    await self.look(looks)
                    await asyncio.sleep(ENDS_EVERY if self._ends.follows else MESSAGES_EVERY)
        finally:
            self.close()

    def close(self) -> None:
        """End the thread when it has done what it was asked."""
        self._scans.close()

    async def look(self, looks: asyncio.TaskGroup) -> None:
        """Scan once, and begin the looks at the hardware that come of it; meanwhile others may end."""
        found = await self._scans.next()
        if found.dropped:
            log.warning("too many termination messages at once; some were not read", number=found.dropped)
            self._too_many(Way.MESSAGE, found.dropped)
        if self._ends.unknown and not self._deaf:
            log.warning(
                "exit codes are not heard: no container runtime keeps its files where we know it to; "
                "--runtime-root says where containerd or CRI-O does",
                containers=self._ends.unknown,
            )
        self._deaf = self._ends.unknown > 0
        for heard in (*map(self._of_message, found.messages), *map(self._of_end, found.ended)):
            if heard is not None:
                looks.create_task(self._report(*heard))

    async def _report(self, reporter: Reporter, report: JobReport) -> None:
        await self._heard(reporter, report)

    def _of_message(self, one: Message) -> tuple[Reporter, JobReport] | None:
        said = last_words.read(one.said)
        whose = (one.pod, one.container)
        if said.explains:
            self._explained.note(whose, one.at)
        if said.report is None or self._ended.last(whose) >= one.at:
            return None
        return Reporter(Way.MESSAGE, f"termination message of pod {one.pod}, {one.container}", one.pod), said.report

    def _of_end(self, one: Ended) -> tuple[Reporter, JobReport] | None:
        report = exit_codes.report_of(one.run.code, one.run.reason)
        whose = (one.pod, one.container)
        if report is None or self._explained.last(whose) >= one.run.started - SLACK:
            return None
        self._ended.note(whose, one.run.finished)
        return Reporter(Way.EXIT_CODE, f"exit code of pod {one.pod}, {one.container}", one.pod), report

    def _scan(self) -> Found:
        ended = self._ends.scan()
        now = self._monotonic()
        if not ended and now < self._messages_due:
            return Found([], [])
        self._messages_due = now + MESSAGES_EVERY
        messages = self._messages.scan()
        dropped, self._messages.dropped = self._messages.dropped, 0
        return Found(messages, ended, dropped)


class _Times:
    """The last time of something, for each of a bounded number of containers."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], float] = OrderedDict()

    def note(self, whose: tuple[str, str], at: float) -> None:
        self._known[whose] = max(at, self._known.pop(whose, at))
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def last(self, whose: tuple[str, str]) -> float:
        return self._known.get(whose, -1.0)


class _Scans:
    """Scans in one thread, one after another; not in the loop's own threads, whose end the process would wait for."""

    def __init__(self, scan: Callable[[], Found]) -> None:
        self._scan = scan
        self._asked: SimpleQueue[asyncio.Future[Found] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def next(self) -> Found:
        """Scan once."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="silent jobs", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                log.warning("nobody looks for what jobs left; the next scan is tried", why=str(error))
                return Found([], [])
            self._thread = thread
        done: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._asked.put(done)
        return await done

    def close(self) -> None:
        self._asked.put(None)
        self._thread = None

    def _work(self) -> None:
        while (done := self._asked.get()) is not None:
            try:
                found: Found | Exception = self._scan()
            except Exception as error:  # noqa: BLE001 (whatever it is, it is raised where the scan is awaited)
                found = error
            try:
                done.get_loop().call_soon_threadsafe(_settle, done, found)
            except RuntimeError:
                return  # The loop is closed: nobody waits any more.


def _settle(done: asyncio.Future[Found], found: Found | Exception) -> None:
    if done.done():
        return
    if isinstance(found, Exception):
        done.set_exception(found)
    else:
        done.set_result(found)
