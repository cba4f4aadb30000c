"""A child in uninterruptible sleep: the case that hangs every agent that waits for its children."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import pytest

from fleetwell.lab import freeze
from fleetwell.probes.child import Answer, Hung, Outstanding, SupervisedChild

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[freeze.FrozenFilesystem]:
    why_not = freeze.available()
    if why_not is not None:
        pytest.skip(why_not)
    made = freeze.FrozenFilesystem(tmp_path / "frozen")
    yield made
    made.dispose()


async def test_it_is_hung_in_time_abandoned_and_tried_again_only_when_it_is_gone(
    filesystem: freeze.FrozenFilesystem,
) -> None:
    child = SupervisedChild("frozen", grace=0.2)
    trap = filesystem.freeze()
    write = [sys.executable, "-S", "-c", f"import os; os.open({str(trap)!r}, os.O_CREAT | os.O_WRONLY); print(1)"]
    started = time.monotonic()
    assert await child.run(write, deadline=0.5, env={}) == Hung(deadline=0.5, abandoned=True)
    assert time.monotonic() - started < 1.5
    assert isinstance(await child.run(write, deadline=0.5, env={}), Outstanding)
    filesystem.thaw()
    async with asyncio.timeout(10):
        await child.gone()
    assert isinstance(await child.run([sys.executable, "-S", "-c", "print(1)"], deadline=5, env={}), Answer)
    child.close()
