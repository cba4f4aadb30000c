"""Feeds the picture: one informer for each kind that decisions look at. Pods are listed by node, when needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from fleetwell.api.resources import INCIDENTS, NODE_HEALTHS, NODE_OPERATIONS, POLICIES
from fleetwell.control.picture import Picture
from fleetwell.control.trim import trim_node
from fleetwell.kube.client import Client
from fleetwell.kube.informer import Change, ChangeKind, Informer
from fleetwell.kube.resource import LEASES, NODES, Resource

T = TypeVar("T")


class Observer:
    """The informers. ``changed`` is called after each change of the picture."""

    def __init__(self, client: Client, picture: Picture, *, namespace: str, changed: Callable[[], None]) -> None:
        self._client = client
        self._changed = changed
        self._informers: list[Informer[Any]] = [
            self._follow(POLICIES, picture.policy_seen, lambda it: picture.policy_gone(it.metadata.name)),
            self._follow(NODES, picture.node_seen, lambda it: picture.node_gone(it.metadata.name), trim=trim_node),
            self._follow(NODE_HEALTHS, picture.health_seen, lambda it: picture.health_gone(it.metadata.name)),
            self._follow(LEASES, picture.lease_seen, lambda _: None, namespace=namespace),
            self._follow(INCIDENTS, picture.incident_seen, lambda it: picture.incident_gone(it.metadata.name)),
            self._follow(NODE_OPERATIONS, picture.book.operation_seen, picture.book.operation_gone),
        ]
        picture.unread_policies = self.following(POLICIES).undecodable
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin to follow; ``synced`` tells when the picture is whole."""
        for informer in self._informers:
            await self._running.enter_async_context(informer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop following."""
        await self._running.aclose()

    async def synced(self) -> None:
        """Wait until every kind has been listed: before that, what is not in the picture may only not be known yet."""
        await asyncio.gather(*(informer.synced.wait() for informer in self._informers))

    def following(self, resource: Resource[T]) -> Informer[T]:
        """Give the informer of a kind."""
        return next(it for it in self._informers if it.resource is resource)

    def failures(self) -> list[str]:
        """Say which kinds are not being followed now, and why."""
        return [f"{it.resource.plural}: {it.failure}" for it in self._informers if it.failure is not None]

    def _follow(
        self,
        resource: Resource[T],
        seen: Callable[[T], None],
        gone: Callable[[T], None],
        *,
        namespace: str | None = None,
        trim: Callable[[T], T] | None = None,
    ) -> Informer[T]:
        informer = Informer(self._client, resource, namespace=namespace, trim=trim)

        def handle(change: Change[T]) -> None:
            (gone if change.kind is ChangeKind.DELETED else seen)(change.object)
            self._changed()

        informer.on_change(handle)
        return informer
