"""For all tests: nothing may be left behind, and what a machine cannot run is skipped visibly."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio


@pytest_asyncio.fixture(autouse=True)
async def _no_stray_tasks(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fail an asynchronous test that leaves a task behind: what still runs, nobody watches over."""
    if request.node.get_closest_marker("asyncio") is None:
        yield
        return
    before = asyncio.all_tasks()
    yield
    # Setup and teardown of this fixture run in tasks of their own.
    stray = [task for task in asyncio.all_tasks() - before - {asyncio.current_task()} if not task.done()]
    assert not stray, f"tasks left behind: {[task.get_name() for task in stray]}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("needs root")
