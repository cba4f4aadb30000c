"""A real cluster for the scenarios: one lab for each file, so that no file sees what another one did."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from fleetwell.lab.host import Settings
from fleetwell.lab.laboratory import Laboratory
from fleetwell.lab.site import Site
from scenarios.field import Field


@pytest.fixture(scope="module")
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A lab whose size and policy the test file may choose: ``NODES = 3``, ``CONTROLLER = False``."""
    nodes = getattr(request.module, "NODES", 3)
    controller = getattr(request.module, "CONTROLLER", True)
    root: Path = tmp_path_factory.mktemp("lab")
    lab = Laboratory(Site(root), tied=True, progress=print)
    lab.up(Settings(nodes=nodes, boot_seconds=1.0, provision_seconds=0.5), controller=controller)
    try:
        yield lab
    finally:
        lab.down()


@pytest_asyncio.fixture
async def field(laboratory: Laboratory) -> AsyncIterator[Field]:
    """The lab with a client of its administrator."""
    async with Field(laboratory) as ground:
        yield ground
