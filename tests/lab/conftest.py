"""A virtual node's hardware for tests."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetwell.lab import machine, nvml_build
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.machine import Machine
from lab.nvml_child import Ask, Clock, asked


@pytest.fixture(scope="session")
def mock_nvml() -> Path:
    return nvml_build.library(lambda _line: None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_node(tmp_path: Path, mock_nvml: Path, clock: Clock) -> Iterator[Callable[[str | Machine], Hardware]]:
    made: list[Hardware] = []

    def make(what: str | Machine) -> Hardware:
        root = tmp_path / f"node-{len(made)}"
        described = machine.load(what) if isinstance(what, str) else what
        made.append(Hardware.create(described, root, "seed", library=mock_nvml, clock=clock))
        return made[-1]

    yield make
    for hardware in made:
        hardware.dispose()
        shutil.rmtree(hardware.root)  # two thousand files each


@pytest.fixture
def node(make_node: Callable[[str | Machine], Hardware]) -> Hardware:
    """An 8 x H100 node, with three of its 32 EFA interfaces since each is fifty files."""
    whole = machine.load("p5.48xlarge")
    return make_node(dataclasses.replace(whole, nics=(*whole.nics[:2], whole.nics[-1])))


@pytest.fixture
def small(make_node: Callable[[str | Machine], Hardware]) -> Hardware:
    """A 4 x L40S node."""
    return make_node("g6e.24xlarge")


@pytest.fixture
def ask() -> Ask:
    return asked
