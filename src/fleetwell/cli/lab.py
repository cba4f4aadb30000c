"""``fleetwell lab``: a real control plane and virtual GPU nodes on this machine, and faults on demand."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from fleetwell.lab import workloads
from fleetwell.lab.controlplane import ControlPlaneError
from fleetwell.lab.controlplane_build import ControlPlaneBuildError, binaries
from fleetwell.lab.faults import FAULTS, FaultError, inject
from fleetwell.lab.hardware import Hardware, HardwareError
from fleetwell.lab.host import HostError, Settings, ask
from fleetwell.lab.laboratory import LabError, Laboratory
from fleetwell.lab.machine import MachineError, load
from fleetwell.lab.nvml_build import NvmlBuildError, library
from fleetwell.lab.site import Site, default_root

_KNOWN = (
    LabError,
    ControlPlaneError,
    ControlPlaneBuildError,
    FaultError,
    HardwareError,
    HostError,
    MachineError,
    NvmlBuildError,
)


class _Lab(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except _KNOWN as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(1)


@click.group("lab", cls=_Lab)
def command() -> None:
    """Play with fleetwell on this machine: a real Kubernetes control plane, virtual GPU nodes, faults on demand."""


_dir = click.option(
    "--dir",
    "root",
    type=click.Path(path_type=Path),
    default=default_root,
    show_default="$FLEETWELL_LAB, else ~/.local/state/fleetwell/lab",
    help="Folder of the lab; labs in different folders run side by side.",
)


def _teller() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda line: click.echo(f"{time.monotonic() - began:6.1f}s  {line}", err=True)


@command.command()
def build() -> None:
    """Build what a lab needs (control plane, mock NVML) and keep it in the cache."""
    tell = _teller()
    binaries(tell)
    library(tell)
    tell("everything is built")


@command.command()
@_dir
@click.option("--nodes", default=6, show_default=True, type=click.IntRange(1, 64), help="How many virtual nodes.")
@click.option("--machine", default="p5.48xlarge", show_default=True, help="Instance type, or a description file.")
@click.option("--policy/--no-policy", default=True, show_default=True, help="Apply the lab's policy, in mode Enforce.")
def up(root: Path, nodes: int, machine: str, *, policy: bool) -> None:
    """Bring a lab up and print the line that points kubectl at it."""
    load(machine)
    laboratory = Laboratory(Site(root.absolute()), progress=_teller())
    laboratory.up(Settings(machine=machine, nodes=nodes))
    if policy:
        laboratory.apply(workloads.policy())
    click.echo(f"export KUBECONFIG={laboratory.site.kubeconfig}")
    click.echo("hint: kubectl get nodes,nodehealths; fleetwell lab inject gpu-lost gpu-1 --gpu 3", err=True)


@command.command()
@_dir
@click.option("--keep", is_flag=True, help="Keep the folder with its logs.")
def down(root: Path, *, keep: bool) -> None:
    """Stop a lab and remove its folder."""
    Laboratory(Site(root.absolute())).down(keep=keep)


@command.command()
@_dir
def status(root: Path) -> None:
    """Say which parts of a lab run; exit code 1 when one does not."""
    running = Laboratory(Site(root.absolute())).running()
    if not any(running.values()):
        raise LabError(f"no lab is up in {root}.\nhint: fleetwell lab up")
    for name, runs in running.items():
        click.echo(f"{name:24} {'running' if runs else 'not running'}")
    click.echo(f"{'nodes':24} {', '.join(ask(Site(root.absolute()), 'nodes'))}")
    sys.exit(0 if all(running.values()) else 1)


@command.command("inject")
@_dir
@click.argument("fault", required=False)
@click.argument("node", required=False)
@click.option("--gpu", type=int, help="Index of the GPU.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the fault.")
def inject_(root: Path, fault: str | None, node: str | None, gpu: int | None, settings: tuple[str, ...]) -> None:
    """Let FAULT happen on NODE, in kernel log, NVML and sysfs alike. Without arguments: list the faults."""
    if fault is None or node is None:
        for spec in FAULTS.values():
            click.echo(f"{spec.name:24} {spec.sentence}")
        return
    parameters = dict(_pair(setting) for setting in settings)
    for line in inject(_hardware(root, node), fault, gpu, **parameters):
        click.echo(line)


@command.command()
@_dir
@click.argument("node")
@click.option("--hard", is_flag=True, help="Cut the power instead of shutting down.")
def reboot(root: Path, node: str, *, hard: bool) -> None:
    """Restart NODE's machine and print its new boot id."""
    click.echo(ask(Site(root.absolute()), "reboot", node=node, orderly=not hard))


@command.command()
@_dir
@click.argument("node")
@click.argument("pod", required=False)
def logs(root: Path, node: str, pod: str | None) -> None:
    """Print the kernel log of NODE, or the log of a pod that ran there (the beginning of its name is enough)."""
    site = Site(root.absolute()).node(node)
    _hardware(root, node)
    if pod is None:
        click.echo((site.host / "dev/kmsg").read_text(errors="replace"), nl=False)
        return
    found = sorted(path for path in site.pods.glob("*") if path.name.partition("_")[2].startswith(pod))
    if not found:
        known = ", ".join(sorted(path.name.partition("_")[2] for path in site.pods.glob("*"))) or "none"
        raise LabError(f"no pod {pod!r} ran on {node}; there are: {known}")
    for folder in found:
        for log in sorted(folder.glob("*.log")):
            click.echo(log.read_text(errors="replace"), nl=False)


@command.command()
@click.option(
    "--dir", "root", type=click.Path(path_type=Path), help="Folder to use and keep; default: a temporary one."
)
def demo(root: Path | None) -> None:
    """Show the whole line, live: a kernel line becomes a node back in service, and the training job finishes."""
    from fleetwell.lab.demo import run  # noqa: PLC0415  # the other verbs need nothing of it

    sys.exit(run(root))


def _hardware(root: Path, node: str) -> Hardware:
    site = Site(root.absolute())
    if node not in site.node_names() or not site.node(node).host.exists():
        known = ", ".join(name for name in site.node_names() if site.node(name).host.exists()) or "none"
        raise LabError(f"there is no node {node!r} in {site.root}; there are: {known}")
    return Hardware(site.node(node).host)


def _pair(setting: str) -> tuple[str, str]:
    name, sign, value = setting.partition("=")
    if not sign:
        raise click.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
    return name, value
