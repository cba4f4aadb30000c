"""A pod's life seen from both sides at once: its object by a watch, its process by the kernel."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from fleetwell.kube.objects import Pod
from fleetwell.kube.resource import PODS
from scenarios.field import Field

IGNORES_SIGTERM = "trap '' TERM; echo $$$$ > pid.new; mv pid.new pid; while :; do sleep 0.2; done"
"""A script that tells its process number (``$$`` is Kubernetes' way to write a dollar) and does not heed SIGTERM."""


class Life:
    """What has been seen so far; times are the test's own."""

    def __init__(self, pod: Pod, process: int) -> None:
        self.name = pod.metadata.name
        self.process = process
        self.hurried = False
        """Whether the object was dying with a grace of 0 while the process ran. Its kubelet sets that afterwards."""
        self.process_ended: float | None = None
        self.object_gone: float | None = None

    @property
    def over(self) -> bool:
        """Whether both have gone."""
        return self.process_ended is not None and self.object_gone is not None

    @property
    def outlived(self) -> bool:
        """Whether the object stayed for as long as the process ran."""
        return self.process_ended is not None and (self.object_gone is None or self.process_ended < self.object_gone)


@asynccontextmanager
async def following(field: Field, name: str) -> AsyncIterator[Life]:
    """Follow a pod of :data:`IGNORES_SIGTERM` for as long as the block lasts."""
    await field.until(f"{name} runs", lambda: field.running(name))
    pod = await field.client.get(PODS, name, "default")
    told = _folder(field, pod) / "pid"

    async def process_number() -> int:
        return int(told.read_text()) if told.exists() else 0

    life = Life(pod, await field.until(f"{name} tells its process", process_number))
    loop = asyncio.get_running_loop()
    ended = os.pidfd_open(life.process)

    def note_end() -> None:
        life.process_ended = loop.time()
        loop.remove_reader(ended)

    async def follow() -> None:
        only = {"fieldSelector": f"metadata.name={name}"}
        version = pod.metadata.resource_version
        watch = field.client.watch(PODS, "default", resource_version=version, params=only, seconds=110.0, grace=5.0)
        async with watch as frames:
            async for frame in frames:
                if frame.type == "BOOKMARK":
                    continue
                meta = msgspec.json.decode(frame.object, type=Pod).metadata
                if frame.type == "DELETED":
                    life.object_gone = loop.time()
                elif meta.deletion_grace_period_seconds == 0:
                    life.hurried = life.hurried or life.process_ended is None

    loop.add_reader(ended, note_end)
    task = asyncio.create_task(follow(), name=f"following {name}")
    try:
        yield life
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        loop.remove_reader(ended)
        os.close(ended)


def _folder(field: Field, pod: Pod) -> Path:
    meta = pod.metadata
    return field.lab.site.node(pod.spec.node_name).pods / f"{meta.namespace}_{meta.name}_{meta.uid[:8]}"
