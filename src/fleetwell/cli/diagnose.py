"""``fleetwell diagnose``: what is wrong with a machine, told from files."""

from __future__ import annotations

from pathlib import Path

import click

from fleetwell.cli import options
from fleetwell.cli.answer import AnswerCommand, answering, give
from fleetwell.diagnose import readings
from fleetwell.diagnose.examination import Examination
from fleetwell.diagnose.given import STDIN, Given, GivenError
from fleetwell.probes.inventory import Expected, MachineMemory, expected

_file = click.Path(exists=True, dir_okay=False, allow_dash=True)


@click.command("diagnose", cls=AnswerCommand)
@click.option("--kernel-log", multiple=True, type=_file, help="dmesg, journald JSON, /dev/kmsg or syslog; - is stdin.")
@click.option(
    "--nvidia-smi", multiple=True, type=_file, help="nvidia-smi's table, -q, -q -x, -L, CSV or nvlink -s, -e."
)
@click.option("--dcgm", multiple=True, type=_file, help="dcgmi health or diag, JSON or text, of 3.x or 4.x.")
@click.option("--bug-report", multiple=True, type=_file, help="nvidia-bug-report.log, or .log.gz as it is.")
@click.option("--host-root", multiple=True, type=click.Path(exists=True, file_okay=False), help="A sysfs/proc tree.")
@click.option(
    "--instance-type",
    default="",
    callback=options.instance_type,
    help="Tells how many GPUs there must be, e.g. p5.48xlarge.",
)
@click.option("--expect", multiple=True, callback=options.expectation, help="What there must be, e.g. gpus=8,efa=32.")
@click.option(
    "--driver", default="", callback=options.driver, metavar="VERSION", help="Driver, where the inputs do not say."
)
@answering
def command(
    *,
    kernel_log: tuple[str, ...],
    nvidia_smi: tuple[str, ...],
    dcgm: tuple[str, ...],
    bug_report: tuple[str, ...],
    host_root: tuple[str, ...],
    instance_type: str,
    expect: Expected,
    driver: str,
    output: str,
    strict: bool,
) -> None:
    """Say what is wrong with which component of a machine, from the files that you have of it.

    Every input may be given several times and beside others; the worst counts. Exit code: 0 well, 1 bad, 2 could not
    tell, 3 called wrongly.
    """
    files = (*kernel_log, *nvidia_smi, *dcgm, *bug_report)
    if files.count(STDIN) > 1:
        raise click.UsageError("standard input (-) can be only one of the inputs")
    examination = Examination()
    examination.driver = driver
    must = expected(expect, instance_type, MachineMemory(serial=""))
    if not files and not host_root:
        examination.problem("ProbeSilent", "nothing was given to judge")
        examination.blind("anything: give --kernel-log, --nvidia-smi, --dcgm, --bug-report or --host-root")
    for readers, paths in (
        (readings.nvidia_smi, nvidia_smi),
        (readings.dcgm, dcgm),
        (readings.bug_report, bug_report),
        (readings.kernel_log, kernel_log),
    ):
        for path in paths:
            try:
                readers(examination, Given(path), must)
            except GivenError as error:
                examination.problem("ProbeSilent", str(error))
    for root in host_root:
        readings.host_tree(examination, Path(root), must)
    readings.say_what_is_missing(examination, must)
    readings.say_what_was_not_counted(examination, must, instance_type)
    give(examination.answer(), output=output, strict=strict)
