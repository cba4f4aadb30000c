"""The scripted API server and a client of it whose pauses take no time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fleetwell.kube.client import Client
from kube.fake_api import FakeApi


class Pauses(list[float]):
    """A ``sleep`` that only remembers how long it was asked for."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as fake:
        yield fake


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def client(api: FakeApi, pauses: Pauses) -> AsyncIterator[Client]:
    async with Client(api.config, user_agent="fleetwell-test/1", timeout=5.0, patience=5.0, sleep=pauses) as made:
        yield made
