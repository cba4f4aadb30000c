"""The process that is the lab's machines: all virtual nodes with their kubelets, the cloud, and a socket for commands.

``python -m fleetwell.lab.host ROOT`` runs until SIGTERM. Commands come one JSON object a line over the Unix socket in
the lab's folder: ``{"command": "reboot", "node": "gpu-1"}``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import os
import signal
import socket
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fleetwell.kube.client import Client
from fleetwell.kube.config import load
from fleetwell.lab import nvml_build
from fleetwell.lab.cloud import Cloud
from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.machine import load as load_machine
from fleetwell.lab.site import Site

log = structlog.get_logger(__name__)

_LINE_LIMIT = 64 * 1024
END_SECONDS = 2.0
"""Seconds for the power to go, and once more for what is left then."""
LAST_SECONDS = 4.5
"""Seconds after a signal in which all of it has to be over."""


class HostError(RuntimeError):
    """The lab's machines could not do what was asked of them."""


class Settings(msgspec.Struct, frozen=True):
    """How the lab's machines are; written to the lab's folder by whoever brings it up."""

    machine: str = "p5.48xlarge"
    nodes: int = 6
    boot_seconds: float = 8.0
    provision_seconds: float = 5.0


def settings_file(site: Site) -> Path:
    """Where the settings are kept."""
    return site.root / "host.json"


def ask(site: Site, command: str, *, timeout: float = 120.0, **arguments: Any) -> Any:
    """Send one command to the lab's machines and give the answer.

    :raises HostError: no lab is up in this folder, or the command failed there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(timeout)
        try:
            link.connect(str(site.socket))
        except OSError as error:
            raise HostError(f"no lab is up in {site.root} ({error.strerror}).\nhint: fleetwell lab up") from error
        link.sendall(msgspec.json.encode({"command": command, **arguments}) + b"\n")
        with link.makefile("rb") as lines:
            line = lines.readline(_LINE_LIMIT)
    if not line:
        raise HostError(f"the lab's machines ended before they answered {command!r}; see {site.logs / 'host.log'}")
    answer = msgspec.json.decode(line)
    if "error" in answer:
        raise HostError(answer["error"])
    return answer["ok"]


class Host:
    """Answers commands for a cloud."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        with contextlib.suppress(ConnectionError):
            async for line in reader:
                try:
                    answer = {"ok": await self._obey(msgspec.json.decode(line))}
                except (HostError, OSError, msgspec.DecodeError) as error:
                    answer = {"error": str(error)}
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        writer.close()

    async def _obey(self, request: dict[str, Any]) -> Any:
        match request:
            case {"command": "nodes"}:
                return sorted(self._cloud.nodes, key=lambda name: int(name.removeprefix("gpu-")))
            case {"command": "add"}:
                return self._cloud.add(unproven=bool(request.get("unproven"))).name
            case {"command": "reboot", "node": str(name)}:
                return await self._node(name).reboot(orderly=bool(request.get("orderly", True)))
            case {"command": "request-reboot", "node": str(name)}:
                # From a process of the node itself, which the reboot will end: it cannot wait for the answer.
                node = self._node(name)
                self._rebooting = asyncio.create_task(node.reboot(orderly=bool(request.get("orderly", True))))
                return node.hardware.boot_id
            case {"command": "power-off", "node": str(name)}:
                return await self._node(name).power_off()
            case {"command": "power-on", "node": str(name)}:
                return self._node(name).power_on()
            case _:
                raise HostError(f"the lab's machines know no such command: {request.get('command')!r}")

    def _node(self, name: str) -> Any:
        if name not in self._cloud.nodes:
            known = ", ".join(sorted(self._cloud.nodes))
            raise HostError(f"there is no node {name!r} in this lab; there are {known}")
        return self._cloud.nodes[name]


async def run(site: Site) -> None:
    """Be the lab's machines until SIGTERM."""
    settings = msgspec.json.decode(settings_file(site).read_bytes(), type=Settings)
    plane = ControlPlane.attach(site.controlplane)
    stop = asyncio.Event()
    _end_by_signal(stop)
    async with Client(load(plane.kubeconfig), user_agent="fleetwell-lab-cloud") as client:
        cloud = Cloud(
            site,
            plane,
            client,
            load_machine(settings.machine),
            library=nvml_build.library(log.info),
            boot_seconds=settings.boot_seconds,
            provision_seconds=settings.provision_seconds,
        )
        cloud.resume()
        while len(cloud.nodes) < settings.nodes:
            cloud.add()
        site.socket.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(Host(cloud).serve, path=site.socket, limit=_LINE_LIMIT)
        running = asyncio.create_task(cloud.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.close()
        site.socket.unlink(missing_ok=True)
        await _end(running)


def _end_by_signal(stop: asyncio.Event) -> None:
    """Have SIGTERM and SIGINT set ``stop``, and end this process in time even where its loop hangs in a system call.

    Where it hung is then in the log. The kernel kills the containers with this process.
    """
    loop = asyncio.get_running_loop()

    def end(_number: int, _frame: object) -> None:
        # Not the loop's own handler, which is called by the loop: a hanging one calls nothing.
        faulthandler.dump_traceback_later(LAST_SECONDS, exit=True)
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


async def _end(running: asyncio.Task[None]) -> None:
    """Take the power from all machines; what does not end by that is named, and not waited for.

    Whoever asked for the end waits, and everything that has to last is on disk.
    """
    running.cancel()
    await asyncio.wait({running}, timeout=END_SECONDS)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if not left:
        return
    _, stuck = await asyncio.wait(left, timeout=END_SECONDS)
    if stuck:
        places = [f"{task.get_name()}: {task.get_stack(limit=1)}" for task in stuck]
        log.warning("the lab's machines end without waiting for these tasks", tasks=places)
        os._exit(0)  # asyncio would wait for them without end


def main() -> None:
    """Run the lab's machines from the command line."""
    parser = argparse.ArgumentParser(prog="python -m fleetwell.lab.host")
    parser.add_argument("root", type=Path)
    asyncio.run(run(Site(parser.parse_args().root)))


if __name__ == "__main__":
    main()
