"""The controller as a process on a real control plane: it leads, gives the lease back, and ends when it has lost it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetwell.api.manifests import manifests
from fleetwell.control.main import LEASE, LOST
from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.config import load
from fleetwell.kube.errors import NotFound
from fleetwell.kube.resource import LEASES, Raw, Resource
from fleetwell.lab.controlplane import ControlPlane

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(240)]

Start = Callable[[str], subprocess.Popen[bytes]]
TIMES = ("--lease-duration", "3", "--renew-deadline", "2", "--retry-period", "0.5")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), tied=True)
    plane.start(print)
    try:
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def start(plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(identity: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fleetwell", "controller", "--kubeconfig", str(plane.kubeconfig)]
        with (tmp_path / f"{identity}.log").open("wb") as log:
            started.append(subprocess.Popen([*command, "--identity", identity, *TIMES], stderr=log, env=os.environ))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


async def _apply(client: Client, documents: list[Raw]) -> None:
    """Apply the CRDs and the namespace: what the controller follows has to be there."""
    plurals = {"CustomResourceDefinition": "customresourcedefinitions", "Namespace": "namespaces"}
    for document in documents:
        kind = document["kind"]
        if kind in plurals:
            group, _, version = document["apiVersion"].rpartition("/")
            resource: Resource[Raw] = Resource(group, version, plurals[kind], kind, False, dict)
            name = document["metadata"]["name"]
            await client.patch(resource, name, document, kind=PatchKind.APPLY, field_manager="test", force=True)


async def _holder(client: Client, wanted: Callable[[str], bool]) -> str:
    """Wait until the lease's holder is one that is wanted."""
    async with asyncio.timeout(60):
        while True:
            try:
                holder = (await client.get(LEASES, LEASE, "fleetwell")).spec.holder_identity or ""
            except NotFound:
                holder = ""
            if wanted(holder):
                return holder
            await asyncio.sleep(0.1)


async def _ended(process: subprocess.Popen[bytes]) -> int:
    async with asyncio.timeout(30):
        return await asyncio.to_thread(process.wait)


async def test_it_leads_hands_over_and_ends_when_it_has_lost_the_lease(plane: ControlPlane, start: Start) -> None:
    async with Client(load(plane.kubeconfig), user_agent="test") as client:
        await _apply(client, manifests())
        first = start("first")
        await _holder(client, lambda holder: holder == "first")
        second = start("second")

        first.send_signal(signal.SIGTERM)
        assert await _ended(first) == 0
        await _holder(client, lambda holder: holder == "second")

        # A leader that was stopped for longer than its lease finds that another leads, and ends.
        third = start("third")
        second.send_signal(signal.SIGSTOP)
        await _holder(client, lambda holder: holder == "third")
        second.send_signal(signal.SIGCONT)
        assert await _ended(second) == LOST

        third.send_signal(signal.SIGTERM)
        assert await _ended(third) == 0
        await _holder(client, lambda holder: not holder)
