"""Events for people: many equal ones are one with a count, and none of them can get in the way.

``record`` only notes; a task writes. What does not fit the bounds is dropped and counted, because an event explains a
decision and must never delay one or fail it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import structlog

from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.errors import KubeError, NotFound
from fleetwell.kube.objects import Event, EventSource, ObjectMeta, ObjectReference
from fleetwell.kube.resource import EVENTS

log = structlog.get_logger(__name__)

LONGEST_MESSAGE = 1024
"""Characters that the API server takes in an event's message."""

LONGEST_NAME = 253
"""Characters of an object's name."""


@dataclass
class _Series:
    """Equal events: what they say, and how far the API server knows of them."""

    about: ObjectReference
    type: str
    reason: str
    message: str
    first: datetime
    last: datetime
    seen_at: float
    count: int = 1
    written: int = 0
    name: str = ""


@dataclass
class _Allowance:
    tokens: float
    at: float


_Key = tuple[str, str, str, str, str, str]


class EventRecorder:
    """Writes core/v1 Events. Use inside ``async with``, which also writes what is still noted at the end.

    The same (object, type, reason, message) within ``window`` seconds bumps a count. Each object has ``burst`` writes,
    refilled at one per ``refill`` seconds; counts that had to wait ride on the next write. At most ``capacity`` series
    and objects are remembered. ``dropped`` counts events that were never shown.
    """

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        instance: str,
        window: float = 600.0,
        burst: int = 25,
        refill: float = 60.0,
        capacity: int = 4096,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.dropped = 0
        self._client = client
        self._component = component
        self._instance = instance
        self._window = window
        self._burst = burst
        self._refill = refill
        self._capacity = capacity
        self._now = now
        self._wall = wall
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._allowances: OrderedDict[tuple[str, str, str], _Allowance] = OrderedDict()
        self._due: OrderedDict[_Key, None] = OrderedDict()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def record(self, about: ObjectReference, reason: str, message: str, *, warning: bool = False) -> None:
        """Note that something happened to an object. Never raises, never waits."""
        message = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
        kind = "Warning" if warning else "Normal"
        key = (about.kind, about.namespace, about.name, about.uid, f"{kind} {reason}", message)
        moment, now = self._wall(), self._now()
        known = self._series.get(key)
        if known is not None and now - known.seen_at < self._window:
            known.count += 1
            known.last, known.seen_at = moment, now
        else:
            self._series[key] = _Series(about, kind, reason, message, moment, moment, now)
        self._series.move_to_end(key)
        while len(self._series) > self._capacity:
            oldest, gone = self._series.popitem(last=False)
            self._due.pop(oldest, None)
            self.dropped += gone.count - gone.written
        if key in self._due or self._allowed(about):
            self._due[key] = None
            self._wake.set()

    async def __aenter__(self) -> Self:
        """Start writing."""
        self._task = asyncio.create_task(self._run(), name="events")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, after writing what is noted."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.flush()

    async def flush(self) -> None:
        """Write what is noted; what the API server does not take is dropped."""
        while self._due:
            key, _ = self._due.popitem(last=False)
            series = self._series[key]
            try:
                await self._write(series)
            except KubeError as error:
                self.dropped += series.count - series.written
                series.written = series.count
                log.warning("event not written", reason=series.reason, about=series.about.name, why=str(error))

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    def _allowed(self, about: ObjectReference) -> bool:
        """Take one write from the object's allowance, if there is one."""
        key, now = (about.kind, about.namespace, about.name), self._now()
        allowance = self._allowances.setdefault(key, _Allowance(float(self._burst), now))
        self._allowances.move_to_end(key)
        if len(self._allowances) > self._capacity:
            self._allowances.popitem(last=False)
        allowance.tokens = min(float(self._burst), allowance.tokens + (now - allowance.at) / self._refill)
        allowance.at = now
        if allowance.tokens < 1:
            return False
        allowance.tokens -= 1
        return True

    async def _write(self, series: _Series) -> None:
        count = series.count
        namespace = series.about.namespace or "default"
        if series.name:
            bump = {"count": count, "lastTimestamp": _stamp(series.last)}
            try:
                await self._client.patch(EVENTS, series.name, bump, kind=PatchKind.MERGE, namespace=namespace)
            except NotFound:
                # The API server forgets events after an hour.
                series.name = ""
            else:
                series.written = count
                return
        name = f"{series.about.name[: LONGEST_NAME - 17]}.{uuid.uuid4().hex[:16]}"
        await self._client.create(EVENTS, self._event(series, name, namespace, count), namespace)
        series.name = name
        series.written = count

    def _event(self, series: _Series, name: str, namespace: str, count: int) -> Event:
        return Event(
            metadata=ObjectMeta(name=name, namespace=namespace),
            involved_object=series.about,
            reason=series.reason,
            message=series.message,
            type=series.type,
            count=count,
            first_timestamp=_stamp(series.first),
            last_timestamp=_stamp(series.last),
            source=EventSource(component=self._component, host=self._instance),
            reporting_component=self._component,
            reporting_instance=self._instance,
        )


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
