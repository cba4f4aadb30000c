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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each scenario time for the lab that the first of its file brings up, on a machine that others use too."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.controlplane)


@pytest.fixture(scope="module")
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A lab that the test file may choose: ``NODES = 3``, ``CONTROLLER = False``, ``AGENT_ARGUMENTS = (...)``.

    With ``AUDIT = True`` the API server notes every request that may change something (:mod:`scenarios.audit`).
    """
    nodes = getattr(request.module, "NODES", 3)
    controller = getattr(request.module, "CONTROLLER", True)
    agent = getattr(request.module, "AGENT_ARGUMENTS", ())
    root: Path = tmp_path_factory.mktemp("lab")
    audit = getattr(request.module, "AUDIT", False)
    lab = Laboratory(Site(root), tied=True, audit=audit, progress=print)
    machine = getattr(request.module, "MACHINE", Settings().machine)
    settings = Settings(machine=machine, nodes=nodes, boot_seconds=1.0, provision_seconds=0.5)
    lab.up(settings, controller=controller, agent_arguments=agent)
    try:
        yield lab
    finally:
        lab.down()


@pytest_asyncio.fixture
async def field(laboratory: Laboratory) -> AsyncIterator[Field]:
    """The lab with a client of its administrator."""
    async with Field(laboratory) as ground:
        yield ground
