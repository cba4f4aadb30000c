"""Keeps a copy of a set of objects up to date: list once, then watch.

It lists again only when it must (410, or a broken stream that cannot be resumed) and then tells its handlers the
difference, deletions included, so that nobody has to know. Each watch ends after a time that the server is told, and is
given up shortly after that time when it has not ended: a half-open connection is silent for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec
import structlog

from fleetwell.kube import bodies
from fleetwell.kube.backoff import Backoff
from fleetwell.kube.client import Client
from fleetwell.kube.errors import ApiError, Expired, KubeError, Undecodable
from fleetwell.kube.resource import Resource
from fleetwell.kube.watch import Frame, decode_identity

T = TypeVar("T")
log = structlog.get_logger(__name__)

WATCH_SECONDS = 240.0
"""How long one watch lasts; drawn between this and 1.5 times this, so that watches do not all end together."""

WATCH_GRACE = 15.0
"""How long after its end a watch that has not ended counts as half open."""


class ChangeKind(enum.StrEnum):
    """What became of an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True)
class Change(Generic[T]):
    """One change. ``old`` is what the informer held before; a DELETED object is shown as it was last seen."""

    kind: ChangeKind
    object: T
    old: T | None = None


@dataclass(frozen=True)
class _Held(Generic[T]):
    object: T
    uid: str
    resource_version: str


class Informer(Generic[T]):
    """A live copy of a whole kind, of a label selection, or of one object by name.

    Handlers are called in the event loop, in order, and must not block. ``trim`` drops what nobody reads before an
    object is kept. ``last_contact`` is the monotonic time of the last byte from the server, or None; ``failure`` is why
    it is not following now, or None; ``undecodable`` names objects that cannot be read now (their last readable form
    stays).
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        name: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        trim: Callable[[T], T] | None = None,
        watch_seconds: float = WATCH_SECONDS,
        watch_grace: float = WATCH_GRACE,
        backoff: Backoff | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        by_name = f"metadata.name={name}" if name else ""
        self.resource = resource
        self.synced = asyncio.Event()
        self.last_contact: float | None = None
        self.failure: KubeError | None = None
        self.undecodable: set[str] = set()
        self._client = client.without_retries()
        self._namespace = namespace
        self._params = bodies.selection(label_selector, ",".join(filter(None, (by_name, field_selector))))
        self._trim = trim
        self._watch_seconds = watch_seconds
        self._watch_grace = watch_grace
        self._backoff = backoff or Backoff(0.5, 30.0)
        self._now = now
        self._sleep = sleep
        self._held: dict[tuple[str, str], _Held[T]] = {}
        self._handlers: list[Callable[[Change[T]], None]] = []
        self._version: str | None = None
        self._task: asyncio.Task[None] | None = None

    def on_change(self, handler: Callable[[Change[T]], None]) -> None:
        """Have ``handler`` called for each change from now on; register before running to see everything."""
        self._handlers.append(handler)

    def get(self, name: str, namespace: str = "") -> T | None:
        """Give the object as last seen, or None."""
        held = self._held.get((namespace, name))
        return held.object if held else None

    def items(self) -> Iterator[T]:
        """Give all objects as last seen."""
        return (held.object for held in self._held.values())

    def __len__(self) -> int:
        """Count the objects held."""
        return len(self._held)

    async def __aenter__(self) -> Self:
        """Start following in a task of its own; wait for ``synced`` to have the whole picture."""
        self._task = asyncio.create_task(self.run(), name=f"informer {self.resource.plural}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def run(self) -> None:
        """Follow until cancelled; every failure is waited out, with growing pauses, and shown in ``failure``."""
        what = self.resource.describe(self._namespace, None)
        while True:
            try:
                if self._version is None:
                    await self._list()
                healthy = await self._watch()
            except (Expired, Undecodable) as error:
                # Only a new list can say what has been missed.
                self._version = None
                failure: KubeError | None = error
            except KubeError as error:
                if _version_from_the_future(error):
                    self._version = None
                failure = error
            else:
                failure = None
                if healthy:
                    continue
            pause = self._backoff.after_failure(at_least=failure.retry_after if isinstance(failure, ApiError) else None)
            if failure is not None:
                (log.info if self.failure is None else log.debug)(
                    "watch interrupted", of=what, why=str(failure), retry_in=pause
                )
            self.failure = failure
            await self._sleep(pause)

    async def _list(self) -> None:
        fresh: dict[tuple[str, str], _Held[T]] = {}
        version = ""
        self.undecodable.clear()
        async with contextlib.aclosing(
            self._client.pages(self.resource, self._namespace, params=self._params)
        ) as pages:
            async for page in pages:
                version = page.metadata.resource_version
                self.last_contact = self._now()
                for raw in page.items or ():
                    key, held = self._read(raw)
                    if held is not None:
                        fresh[key] = held
                    elif key in self._held:
                        fresh[key] = self._held[key]
        for key in [key for key in self._held if key not in fresh]:
            self._remove(key)
        for key, held in fresh.items():
            self._put(key, held)
        self._version = version
        self.failure = None
        self.synced.set()

    async def _watch(self) -> bool:
        """Follow one watch to its end; False when it ended early and empty, which asks for a pause."""
        seconds = self._watch_seconds * (1.0 + 0.5 * random.random())  # noqa: S311 (spreads load, hides nothing)
        started = self._now()
        alive = False
        async with self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self._version or "",
            params=self._params,
            seconds=seconds,
            grace=self._watch_grace,
        ) as frames:
            self.last_contact = self._now()
            async for frame in frames:
                self.last_contact = self._now()
                self.failure = None
                alive = True
                self._backoff.reset()
                self._apply(frame)
        return alive or self._now() - started >= seconds / 2

    def _apply(self, frame: Frame) -> None:
        if frame.type == "BOOKMARK":
            self._version = decode_identity(self.resource.plural, frame.object).resource_version
            return
        key, held = self._read(frame.object)
        version = decode_identity(self.resource.plural, frame.object).resource_version
        if frame.type == "DELETED":
            self.undecodable.discard(key[1])
            self._remove(key, last=held)
        elif held is not None:
            self._put(key, held)
        self._version = version

    def _read(self, raw: msgspec.Raw) -> tuple[tuple[str, str], _Held[T] | None]:
        who = decode_identity(self.resource.plural, raw)
        key = (who.namespace, who.name)
        try:
            decoded = self.resource.decode(raw)
        except msgspec.DecodeError as error:
            self.undecodable.add(who.name)
            log.warning(
                "object cannot be read, keeping what was known", kind=self.resource.kind, name=who.name, why=str(error)
            )
            return key, None
        self.undecodable.discard(who.name)
        return key, _Held(self._trim(decoded) if self._trim else decoded, who.uid, who.resource_version)

    def _put(self, key: tuple[str, str], held: _Held[T]) -> None:
        before = self._held.get(key)
        if before is not None and before.uid != held.uid:
            # Deleted and made again under the same name while nobody looked.
            self._remove(key)
            before = None
        if before is not None and before.resource_version == held.resource_version:
            return
        self._held[key] = held
        if before is None:
            self._tell(Change(ChangeKind.ADDED, held.object))
        else:
            self._tell(Change(ChangeKind.MODIFIED, held.object, before.object))

    def _remove(self, key: tuple[str, str], *, last: _Held[T] | None = None) -> None:
        before = self._held.pop(key, None)
        if before is not None:
            self._tell(Change(ChangeKind.DELETED, (last or before).object, before.object))

    def _tell(self, change: Change[T]) -> None:
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                # A handler's bug must not stop the picture from being kept, which every other reader relies on.
                log.exception("a change handler failed", kind=self.resource.kind, change=change.kind)


def _version_from_the_future(error: KubeError) -> bool:
    """Whether the server knows nothing as new as what we hold: its etcd was restored from a backup."""
    return isinstance(error, ApiError) and any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes)
