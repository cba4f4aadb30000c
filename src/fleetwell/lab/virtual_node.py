"""A virtual GPU node: its hardware in a folder, its kubelet as a task, and the power button."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import structlog

from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.kubelet import Kubelet, Registration
from fleetwell.lab.machine import Machine
from fleetwell.lab.site import POOL, NodeSite

log = structlog.get_logger(__name__)

SHUTDOWN_SECONDS = 10.0
CANCEL_SECONDS = 0.5
UNPROVEN = {"key": "fleetwell.io/unproven", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Plan:
    """What a virtual node is to be."""

    name: str
    number: int
    machine: Machine
    unproven: bool = False
    """Join with the taint of a node that has to prove itself first."""


class VirtualNode:
    """One virtual node."""

    def __init__(self, plan: Plan, site: NodeSite, plane: ControlPlane, *, boot_seconds: float, library: Path) -> None:
        self.name = plan.name
        self._plan = plan
        self._site = site
        self._plane = plane
        self._boot_seconds = boot_seconds
        self._lock = asyncio.Lock()
        self._kubelet: Kubelet | None = None
        self._task: asyncio.Task[None] | None = None
        if (site.host / "var/lib/fleetwell-lab/node.json").exists():
            self.hardware = Hardware(site.host)
        else:
            self.hardware = Hardware.create(plan.machine, site.host, plan.name, library=library)

    @property
    def provider_id(self) -> str:
        """The machine behind the Node object."""
        return f"lab:///{self.hardware.state.dmi_serial}"

    def power_on(self) -> None:
        """Start the kubelet, which joins the cluster."""
        machine = self._plan.machine
        self._plane.kubeconfig_for(self._site.kubeconfig, f"system:node:{self.name}", groups=["system:nodes"])
        registration = Registration(
            name=self.name,
            address=f"127.1.{self._plan.number // 256}.{self._plan.number % 256}",
            provider_id=self.provider_id,
            labels={
                "kubernetes.io/hostname": self.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": machine.instance_type,
                "fleetwell.io/pool": POOL,
                "nvidia.com/gpu.product": machine.gpu.name.replace(" ", "-"),
            },
            taints=(UNPROVEN,) if self._plan.unproven else (),
        )
        self._kubelet = Kubelet(registration, self.hardware, self._site, self._plane)
        self._task = asyncio.create_task(self._kubelet.run(), name=f"kubelet {self.name}")

    async def power_off(self) -> None:
        """Cut the power: every process ends now, and nobody is told."""
        task, kubelet = self._task, self._kubelet
        if task is None or kubelet is None:
            return
        kubelet.lose_power()
        while not task.done():
            # Asked again, because a cancellation may be lost where it meets an answer that comes at the same moment.
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("the kubelet had failed", node=self.name, why=repr(error))
        if self._task is task:
            self._task = self._kubelet = None

    async def reboot(self, *, orderly: bool = True) -> str:
        """Restart the machine and give its new boot id; a second wish while it restarts waits for the first one."""
        async with self._lock:
            log.info("rebooting", node=self.name, orderly=orderly)
            if orderly and self._kubelet is not None:
                await self._kubelet.shut_down(SHUTDOWN_SECONDS)
            await self.power_off()
            await asyncio.sleep(self._boot_seconds)
            boot_id = self.hardware.reboot()
            self.power_on()
            log.info("booted", node=self.name, boot_id=boot_id)
            return boot_id

    async def scrap(self) -> None:
        """Take the machine away for good."""
        async with self._lock:
            await self.power_off()
            self.hardware.dispose()
            shutil.rmtree(self._site.host, ignore_errors=True)
