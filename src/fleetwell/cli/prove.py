"""``fleetwell prove``: the active test of this machine's GPUs, as it runs before a node gets work again."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import click
import msgspec

from fleetwell.agent.sources import failure
from fleetwell.api.fields import seconds
from fleetwell.cli.answer import AnswerCommand, answering, give
from fleetwell.diagnose.diagnosis import Diagnosis, Found, conclude
from fleetwell.health.catalogue import CATALOGUE, fault
from fleetwell.health.vocabulary import HOST, FaultName, Verdict
from fleetwell.probes import launch, protocol
from fleetwell.probes.child import Answer, SupervisedChild
from fleetwell.probes.driver import LIBRARY, library
from fleetwell.probes.inventory import parse_expect

DEADLINES: Final = {"quick": 300.0, "medium": 1800.0, "long": 12600.0}
"""Seconds that each level may take, where nothing else is said; long has room for DCGM's longest diagnostic."""
_BLIND: Final = "blind: "
"""How the detail of a check begins that this machine has not got: neither a pass nor a failure."""
_FAULT: Final = re.compile(r"(?P<fault>[A-Z]\w{2,60}) on (?P<component>[a-z]+(?:/\S{1,128})?): ")


def _deadline(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    del ctx, param
    try:
        return None if value is None else seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _gpus(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> int | None:
    del ctx, param
    try:
        return parse_expect(value).gpus
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("prove", cls=AnswerCommand)
@click.option("--level", type=click.Choice(list(DEADLINES)), default="quick", show_default=True, help="How thorough.")
@click.option(
    "--host-root", type=click.Path(path_type=Path, exists=True, file_okay=False), default="/", help="The host's root."
)
@click.option("--expect", multiple=True, callback=_gpus, help="What there must be, e.g. gpus=8.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="Where it computes; cpu tries out the test itself.",
)
@click.option("--deadline", callback=_deadline, metavar="DURATION", help="Longest that it may take.")
@answering
def command(
    *,
    level: str,
    host_root: Path,
    expect: int | None,
    device: str,
    deadline: float | None,
    output: str,
    strict: bool,
) -> None:
    """Prove that this machine's GPUs work: memory, computation, links, checked against what they must give.

    It uses the GPUs: run it where no work runs. What could not be run is no pass. Exit code: 0 passed, 1 failed, 2
    could not tell, 3 called wrongly.
    """
    if device != "cpu" and library(host_root) is None:
        said = f"no {LIBRARY} in any driver root below {host_root}: there is no GPU to prove"
        give(unfinished(said), output=output, strict=strict)
    within = deadline or DEADLINES[level]
    argv = launch.python("proof", "--level", level, "--host-root", str(host_root), "--device", device)
    argv += ["--deadline", str(within)]
    argv += ["--expect-gpus", str(expect)] if expect is not None else []
    diagnosis = asyncio.run(_run(argv, within))
    if device == "cpu":
        blind = (*diagnosis.blind, "whether the GPUs work: this was a trial of the test on the CPU")
        diagnosis = msgspec.structs.replace(diagnosis, blind=blind)
    give(diagnosis, output=output, strict=strict)


async def _run(argv: list[str], within: float) -> Diagnosis:
    child = SupervisedChild("proof")
    try:
        outcome = await child.run(argv, deadline=within, env=launch.environment())
    finally:
        child.close()
    if not isinstance(outcome, Answer):
        name, said = failure(outcome)
        return unfinished(f"{name}: {said}")
    try:
        return judge(protocol.read_proof(outcome.output))
    except protocol.NonsenseError as error:
        return unfinished(str(error))


def judge(rows: tuple[protocol.ProofRow, ...]) -> Diagnosis:
    """Put the checks of a proof into the answer's form: one finding for each that did not pass."""
    well = [row for row in rows if row.verdict is Verdict.OK]
    passed = [f"passed: {row.check}: {row.detail}" for row in well if not row.detail.startswith(_BLIND)]
    blind = tuple(f"{row.check}: {row.detail.removeprefix(_BLIND)}" for row in well if row.detail.startswith(_BLIND))
    found = tuple(_found(row) for row in rows if row.verdict is not Verdict.OK)
    click.echo("\n".join(passed), err=True)
    return conclude(found, blind, judged=bool(passed or found))


def unfinished(said: str) -> Diagnosis:
    """Give the answer of a proof that gave no result: never a pass."""
    row = protocol.ProofRow(check="proof", verdict=Verdict.UNKNOWN, detail=said)
    return conclude((_found(row),), (f"whether the GPUs work: {said}",), judged=False)


def _found(row: protocol.ProofRow) -> Found:
    named = _FAULT.match(row.detail)
    if named is not None and named["fault"] in CATALOGUE:
        entry, component, said = fault(named["fault"]), named["component"], row.detail[named.end() :]
    else:
        entry = fault("GpuProofFailed" if row.verdict is Verdict.BAD else "ProofUnfinished")
        component, said = str(HOST), row.detail
    return Found(
        fault=FaultName(entry.name),
        component=component,
        verdict=row.verdict,
        recovery=entry.recovery,
        count=1,
        evidence=(f"{row.check}: {said}",),
        why=f"{entry.means} {entry.action}",
    )
