"""``fleetwell run``: where ``torchrun`` stood. The launcher's flags are torchrun's, spelled either way."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog

from fleetwell.train.launcher import Launcher
from fleetwell.train.settings import LaunchSettings, Limits

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_PORT = 29400  # torchrun's default where an endpoint names none
_GPU = re.compile(r"nvidia\d+")


def _workers(wanted: str) -> int:
    """Read ``--nproc-per-node``: a number, or what the node has (``auto``: its GPUs if any, else its CPUs)."""
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    if wanted not in {"gpu", "cpu", "auto"}:
        message = f"{wanted!r} is neither a number above 0 nor one of gpu, cpu, auto"
        raise click.BadParameter(message, param_hint="--nproc-per-node")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        gpus = len([item for item in visible.split(",") if item.strip()])
    else:
        gpus = sum(1 for item in Path("/dev").iterdir() if _GPU.fullmatch(item.name))
    if wanted == "gpu" and not gpus:
        message = "no GPU is visible here: neither /dev/nvidia0 nor CUDA_VISIBLE_DEVICES"
        raise click.BadParameter(message, param_hint="--nproc-per-node")
    return gpus if gpus and wanted != "cpu" else os.cpu_count() or 1


def _nodes(wanted: str) -> int:
    """Read ``--nnodes``: N, or N:N as elastic scripts write it."""
    least, _, most = wanted.partition(":")
    if not least.isdigit() or int(least) < 1:
        message = f"{wanted!r} is not a number of nodes"
        raise click.BadParameter(message, param_hint="--nnodes")
    if most and most != least:
        message = f"{wanted!r}: the number of nodes is fixed here; name one number"
        raise click.BadParameter(message, param_hint="--nnodes")
    return int(least)


def _node(given: int | None, nnodes: int) -> int:
    names = ("JOB_COMPLETION_INDEX", "PET_NODE_RANK", "NODE_RANK")
    found = next((os.environ[name] for name in names if os.environ.get(name, "").isdigit()), None)
    if given is None and found is None and nnodes > 1:
        message = f"which of the {nnodes} nodes is this? Give --node-rank or set one of {', '.join(names)}"
        raise click.UsageError(message)
    node = given if given is not None else int(found or 0) if nnodes > 1 else 0
    if not 0 <= node < nnodes:
        message = f"{node} is not a node of {nnodes} (0 to {nnodes - 1})"
        raise click.BadParameter(message, param_hint="--node-rank")
    return node


def _endpoint(given: str | None, address: str | None, port: int | None, nnodes: int) -> tuple[str, int]:
    if given is None and address is not None:
        given = f"{address}:{port or _PORT}"
    if given is None and nnodes == 1:
        return "127.0.0.1", 0
    if given is None:
        message = "more than one node: give --rdzv-endpoint HOST:PORT, where HOST is node 0"
        raise click.UsageError(message)
    host, _, tail = given.rpartition(":") if ":" in given else (given, "", str(_PORT))
    if not host or not tail.isdigit() or int(tail) > 65535:
        message = f"{given!r} is not HOST:PORT"
        raise click.BadParameter(message, param_hint="--rdzv-endpoint")
    return ("127.0.0.1" if nnodes == 1 else host.strip("[]")), int(tail)


def _line(_logger: object, level: str, event: MutableMapping[str, Any]) -> str:
    """Render one event for people: time, node, level where it matters, what, and its fields."""
    node, what = event.pop("node"), event.pop("event")
    fields = " ".join(f"{key}={value}" for key, value in event.items() if value is not None)
    urgent = "" if level == "info" else f"{level.upper()}: "
    return f"{time.strftime('%H:%M:%S')} fleetwell run, node {node}: {urgent}{what} {fields}".rstrip()


def _set_logs(node: int) -> None:
    """Log to stderr, one line an event; stdout belongs to the workers."""

    def with_node(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"where": event.pop("node", None), **event, "node": node}

    structlog.configure(
        processors=[with_node, _line],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


@click.command("run", context_settings={"allow_interspersed_args": False, "show_default": True})
@click.option("--nnodes", default="1", envvar="PET_NNODES", help="Number of nodes.")
@click.option(
    "--nproc-per-node", "--nproc_per_node", default="1", envvar="PET_NPROC_PER_NODE",
    help="Workers on this node: a number, gpu, cpu or auto.",
)  # fmt: skip
@click.option(
    "--node-rank", "--node_rank", type=int, default=None,
    help="Which node this is; else JOB_COMPLETION_INDEX, PET_NODE_RANK or NODE_RANK says so.",
)  # fmt: skip
@click.option(
    "--rdzv-endpoint", "--rdzv_endpoint", default=None, envvar="PET_RDZV_ENDPOINT",
    help="HOST:PORT of node 0, where the launchers meet.",
)  # fmt: skip
@click.option("--master-addr", "--master_addr", default=None, help="HOST of the endpoint, as torchrun also takes it.")
@click.option("--master-port", "--master_port", type=int, default=None, help="PORT of the endpoint.")
@click.option("--rdzv-id", "--rdzv_id", default="none", envvar="PET_RDZV_ID", help="Name of the run; all nodes agree.")
@click.option("--standalone", is_flag=True, help="One node, whatever else says: --nnodes 1 at a free port.")
@click.option("--local-addr", "--local_addr", default=None, help="Address of this node for the others, if not HOST.")
@click.option(
    "--max-restarts", "--max_restarts", type=click.IntRange(0), default=0, envvar="PET_MAX_RESTARTS",
    help="Failures of workers to survive; drains and lost nodes do not count.",
)  # fmt: skip
@click.option(
    "--rdzv-timeout", "--rdzv_timeout", type=click.FloatRange(1), default=600.0,
    help="Seconds to wait for missing nodes.",
)  # fmt: skip
@click.option("--grace", type=click.FloatRange(1), default=25.0, help="Seconds from SIGTERM to this node's exit.")
@click.option("--stop-timeout", type=click.FloatRange(0), default=5.0, help="Seconds from workers' SIGTERM to SIGKILL.")
@click.option(
    "--silence-timeout", type=click.FloatRange(1), default=15.0,
    help="Seconds without a word after which another node counts as lost.",
)  # fmt: skip
@click.option(
    "--run-dir", "--run_dir", type=click.Path(file_okay=False, path_type=Path), default=None,
    envvar="FLEETWELL_RUN_DIR", help="Where the run's events and generation numbers are kept, shared by the nodes.",
)  # fmt: skip
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as in python -m.")
@click.option("--no-python", "--no_python", is_flag=True, help="SCRIPT is a program, not a Python file.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    nnodes: str,
    nproc_per_node: str,
    node_rank: int | None,
    rdzv_endpoint: str | None,
    master_addr: str | None,
    master_port: int | None,
    rdzv_id: str,
    standalone: bool,
    local_addr: str | None,
    max_restarts: int,
    rdzv_timeout: float,
    grace: float,
    stop_timeout: float,
    silence_timeout: float,
    run_dir: Path | None,
    module: bool,
    no_python: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a distributed training SCRIPT that survives: restarts, and a save before a node has to leave.

    Takes the place of torchrun. Exit code: 0 when all workers finished; 143 when this node drained; else the code of
    the worker that was the root of the last failure (1 for a signal).
    """
    if module and no_python:
        message = "--module and --no-python exclude one another"
        raise click.UsageError(message)
    count = 1 if standalone else _nodes(nnodes)
    host, port = _endpoint(None if standalone else rdzv_endpoint, master_addr, master_port, count)
    python = [] if no_python else [sys.executable, *(["-m"] if module else [])]
    settings = LaunchSettings(
        command=(*python, script, *arguments),
        nnodes=count,
        nproc=_workers(nproc_per_node),
        node=_node(node_rank, count),
        host=host,
        port=port,
        run_id=rdzv_id,
        max_restarts=max_restarts,
        local_address=local_addr,
        run_dir=run_dir.absolute() if run_dir is not None else None,
        limits=Limits(rendezvous=rdzv_timeout, grace=grace, stop=stop_timeout, silence=silence_timeout),
    )
    _set_logs(settings.node)
    sys.exit(asyncio.run(_run(settings)))


async def _run(settings: LaunchSettings) -> int:
    return await Launcher(settings).run()
