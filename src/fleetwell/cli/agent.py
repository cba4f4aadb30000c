"""``fleetwell agent``: the node's process."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from fleetwell.agent.http import split_address
from fleetwell.agent.logs import log_to_stderr
from fleetwell.agent.main import StartError, run
from fleetwell.agent.settings import Settings, Timing
from fleetwell.cli import options
from fleetwell.probes.inventory import Expected


def _address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    del ctx, param
    try:
        if value:
            split_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _second_opinion(interval: float, deadline: float, boot_grace: float, *, again: float) -> Timing | None:
    if not interval:
        return None
    again = min(again, interval)
    return Timing(interval=interval, deadline=deadline, boot_grace=boot_grace, again=again, gap=again)


@click.command("agent", context_settings={"auto_envvar_prefix": "FLEETWELL_AGENT", "show_default": True})
@click.option("--node-name", envvar="NODE_NAME", required=True, help="Name of this machine's Node object.")
@click.option("--host-root", type=click.Path(path_type=Path, file_okay=False), default="/", help="The host's root.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default="/var/lib/fleetwell",
    help="Where operations are recorded; on a disk of the host that survives a reboot.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help="Default: the pod's own account.")
@click.option("--namespace", default="fleetwell", help="Namespace of the heartbeat Lease.")
@click.option(
    "--expect",
    callback=options.expectation,
    default="",
    help="What the node must have: gpus=8,efa=32,ib=8, and ib-gbps=400 for rates. Default: the instance type's GPUs, "
    "the interfaces that were requested, else the most seen here.",
)
@options.timed("--nvml-interval", "30s", "Between two looks at NVML; a third of it while not all is well.")
@options.timed("--nvml-deadline", "15s", "After which NVML counts as hung.")
@options.timed("--sysfs-interval", "1m", "Between two looks at sysfs.")
@options.timed("--sysfs-deadline", "10s", "After which sysfs counts as hung.")
@options.timed("--nvidia-smi-interval", "10m", "Between two looks at nvidia-smi, where it is installed; 0s: never.")
@options.timed("--dcgm-interval", "5m", "Between two looks at DCGM's health, where it is installed; 0s: never.")
@options.timed("--operand-pause", "1h", "That the GPU operator may keep its parts paused before it is a finding.")
@options.timed("--boot-grace", "1m", "After a boot, for so long a look that misses a device is repeated, not believed.")
@click.option(
    "--maintenance",
    type=click.Choice(["auto", "ec2", "gce", "off"]),
    default="auto",
    help="Whose metadata server is asked for announced maintenance; auto: as the machine's firmware names its vendor.",
)
@options.timed("--maintenance-interval", "1m", "Between two questions for announced maintenance.")
@click.option("--metadata-url", default="", help="Where that server is. Default: at the provider's own address.")
@options.timed("--heartbeat", "1m", "Between two renewals of the Lease.")
@click.option(
    "--metrics-address",
    callback=_address,
    default="0.0.0.0:9420",
    metavar="HOST:PORT",
    help='Where metrics are scraped and jobs report; "" for nowhere.',
)
@click.option(
    "--report-socket",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Unix socket where jobs report too, for those that may mount its folder. Default: none.",
)
@click.option(
    "--runtime-root",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where the host's containerd or CRI-O's storage keeps its data: exit codes are read there. "
    "Default: the usual places.",
)
@click.option("--reboot-command", default="", help="What asks for an orderly reboot. Default: the host's systemctl.")
@options.timed("--orderly-reboot", "3m", "That an orderly reboot may take before sysrq is used.")
@click.option(
    "--proof-device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    help="Where a proof computes; auto: on CUDA, but on the CPU of a virtual node of the lab.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of the log on stderr.")
def command(
    *,
    node_name: str,
    host_root: Path,
    state_dir: Path,
    kubeconfig: Path | None,
    namespace: str,
    expect: Expected,
    nvml_interval: float,
    nvml_deadline: float,
    sysfs_interval: float,
    sysfs_deadline: float,
    nvidia_smi_interval: float,
    dcgm_interval: float,
    operand_pause: float,
    boot_grace: float,
    maintenance: str,
    maintenance_interval: float,
    metadata_url: str,
    heartbeat: float,
    metrics_address: str,
    report_socket: Path | None,
    runtime_root: Path | None,
    reboot_command: str,
    orderly_reboot: float,
    proof_device: str,
    log_format: str,
) -> None:
    """Watch this node's hardware, publish what is found, and carry out what the controller asks for.

    Every option can also be set as FLEETWELL_AGENT_<OPTION>, e.g. FLEETWELL_AGENT_NVML_INTERVAL.
    """
    log_to_stderr(log_format)
    again = nvml_interval / 3
    settings = Settings(
        node_name=node_name,
        host_root=host_root,
        state_dir=state_dir,
        kubeconfig=kubeconfig,
        namespace=namespace,
        expect=expect,
        nvml=Timing(interval=nvml_interval, deadline=nvml_deadline, boot_grace=boot_grace, again=again),
        sysfs=Timing(
            interval=sysfs_interval,
            deadline=sysfs_deadline,
            boot_grace=boot_grace,
            again=min(2 * again, sysfs_interval),
        ),
        nvidia_smi=_second_opinion(nvidia_smi_interval, 30.0, boot_grace, again=4 * again),
        dcgm=_second_opinion(dcgm_interval, 45.0, boot_grace, again=6 * again),
        operand_pause=operand_pause,
        maintenance=maintenance,
        maintenance_timing=Timing(interval=maintenance_interval, deadline=10.0),
        metadata_url=metadata_url,
        heartbeat=heartbeat,
        metrics_address=metrics_address,
        report_socket=report_socket,
        runtime_root=runtime_root,
        reboot_command=tuple(shlex.split(reboot_command)),
        orderly_reboot=orderly_reboot,
        proof_device=proof_device,
    )
    try:
        sys.exit(run(settings))
    except StartError as error:
        raise click.ClickException(str(error)) from error
