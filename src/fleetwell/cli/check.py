"""``fleetwell check``: the probes, once, on this machine."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import click

from fleetwell.agent.boot import Boot, read_boot
from fleetwell.agent.sources import COMES_LATE, failure
from fleetwell.cli import options
from fleetwell.cli.answer import AnswerCommand, answering, give
from fleetwell.diagnose import logs, readings
from fleetwell.diagnose.examination import Examination
from fleetwell.probes import SYSFS_PROBES, launch, protocol
from fleetwell.probes.child import Answer, Outcome, SupervisedChild
from fleetwell.probes.inventory import Expected, MachineMemory, expected, told

LOOKS: Final = (
    ("nvml", ("nvml",), 15.0),
    ("sysfs", SYSFS_PROBES, 10.0),
    ("nvidia_smi", ("nvidia_smi",), 30.0),
    ("dcgm", ("dcgm",), 30.0),
)
"""Child, the probes that it answers for, and its deadline in seconds."""


@click.command("check", cls=AnswerCommand)
@click.option(
    "--host-root", type=click.Path(path_type=Path, exists=True, file_okay=False), default="/", help="The host's root."
)
@click.option(
    "--instance-type",
    default="",
    callback=options.instance_type,
    help="Tells how many GPUs there must be.  [default: what the host says]",
)
@click.option("--expect", multiple=True, callback=options.expectation, help="What there must be, e.g. gpus=8,efa=32.")
@click.option(
    "--deadline", callback=options.duration, default="30s", show_default=True, help="Longest that a probe may take."
)
@click.option(
    "--boot-grace",
    callback=options.duration,
    default="1m",
    show_default=True,
    help="For so long after a boot a missing device leaves the answer open: it may come late.",
)
@answering
def command(
    *,
    host_root: Path,
    instance_type: str,
    expect: Expected,
    deadline: float,
    boot_grace: float,
    output: str,
    strict: bool,
) -> None:
    """Look once at this machine and say what is wrong with which component.

    It has no memory: an event of the kernel log counts until the next boot, whatever was done about it since. Exit
    code: 0 well, 1 bad, 2 could not tell, 3 called wrongly.
    """
    examination = Examination()
    try:
        boot = read_boot(host_root, "this machine")
    except OSError as error:
        raise click.UsageError(f"{host_root} is no host's root: {error.strerror or error}") from error
    must = expected(expect, instance_type or boot.instance_type, MachineMemory(serial=""))
    examination.now = time.time()
    young = boot.uptime(examination.now) < boot_grace
    asyncio.run(_look(examination, host_root, must, deadline, late=COMES_LATE if young else frozenset()))
    _kernel_log(examination, host_root / "dev/kmsg", boot)
    if not examination.looked:
        said = "no probe found a GPU or an adapter to judge on this machine"
        examination.problem("ProbeSilent", said, "Say what must be here with --expect, and the host with --host-root.")
    readings.say_what_was_not_counted(examination, must, instance_type)
    give(examination.answer(), output=output, strict=strict)


async def _look(
    examination: Examination, host_root: Path, must: Expected, deadline: float, *, late: frozenset[str]
) -> None:
    """Run all children at once; none of them is waited for beyond its deadline.

    Their answers are taken in one order, whichever came first: the same machine gives the same answer.
    """
    settings = {"host_root": str(host_root), **told(must, MachineMemory(serial=""))}

    async def one(module: str, most: float) -> Outcome:
        child = SupervisedChild(module)
        within = min(most, deadline)
        try:
            argv = launch.module(module, {**settings, "deadline": within})
            return await child.run(argv, deadline=within, env=launch.environment())
        finally:
            child.close()

    outcomes = await asyncio.gather(*(one(module, most) for module, _, most in LOOKS))
    for (module, probes, _), outcome in zip(LOOKS, outcomes, strict=True):
        if isinstance(outcome, Answer):
            try:
                for report in protocol.read(outcome.output, probes):
                    examination.look(report, report.probe, late=late)
            except protocol.NonsenseError as error:
                examination.silent(module, "ProbeNonsense", str(error))
        else:
            examination.silent(module, *failure(outcome))


def _kernel_log(examination: Examination, path: Path, boot: Boot) -> None:
    """Read what the kernel's ring still holds of this boot."""
    if boot.driver_branch is not None:
        examination.driver = str(boot.driver_branch)
    try:
        records = logs.ring(path)
    except OSError as error:
        examination.silent("kernel_log", "KernelLogUnreadable", f"{path}: {os.strerror(error.errno or 0)}")
        return
    examination.log(lambda known: logs.recorded(known, records, boot.booted_at))
