"""What an agent can do to its node: reset a GPU, reboot, prove, collect logs.

Each is a child or a command, never a wait without an end, and says honestly how it ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import structlog

from fleetwell.agent.settings import Settings
from fleetwell.api.node_operation import (
    NodeOperationSpec,
    NodeOperationStatus,
    OperationKind,
    OperationPhase,
    ProofResult,
)
from fleetwell.health.evidence import evidence
from fleetwell.health.vocabulary import Verdict
from fleetwell.probes import launch, protocol
from fleetwell.probes.child import Answer, Crashed, Hung, Nonsense, Outcome, Outstanding, SupervisedChild
from fleetwell.probes.inventory import Expected

log = structlog.get_logger(__name__)

COMMAND_DEADLINE = 60.0
"""Seconds for the command that asks for an orderly reboot; the reboot itself comes after it."""
SYNC_SECONDS = 5.0


class NodeDeeds:
    """Carries out operations on this node.

    :param expected: what the node must have, as known at that moment.
    :param pause: keeps the GPU probes away while it lasts, so that they neither block a reset nor are blocked by it.
    """

    def __init__(
        self,
        settings: Settings,
        expected: Callable[[], Expected],
        pause: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._settings = settings
        self._expected = expected
        self._pause = pause
        self._children = {kind: SupervisedChild(kind.value) for kind in OperationKind}

    def close(self) -> None:
        """Kill what is still running."""
        for child in self._children.values():
            child.close()

    async def do(self, spec: NodeOperationSpec, within: float) -> NodeOperationStatus:
        """Carry it out."""
        match spec.kind:
            case OperationKind.REBOOT:
                return await self._reboot(within)
            case OperationKind.RESET_GPU:
                with self._pause():
                    return await self._reset(spec.component, within)
            case OperationKind.PROVE:
                with self._pause():
                    return await self._prove(spec, within)
            case OperationKind.COLLECT_LOGS:
                return await self._collect(spec.operation_id, within)

    async def _reset(self, component: str, within: float) -> NodeOperationStatus:
        kind, _, uuid = component.partition("/")
        if kind != "gpu" or not uuid or uuid.startswith("pci-"):
            return _failed(f"only a GPU that is named by its UUID can be reset, and {component!r} is none")
        settings = {"host_root": str(self._settings.host_root), "uuid": uuid, "deadline": within}
        outcome = await self._run(OperationKind.RESET_GPU, launch.module("reset", settings), within)
        if isinstance(outcome, Answer):
            return NodeOperationStatus(phase=OperationPhase.SUCCEEDED, message=_said(outcome.output))
        return _failed(f"{component} was not reset: {_why(outcome)}")

    async def _prove(self, spec: NodeOperationSpec, within: float) -> NodeOperationStatus:
        expected = self._expected().gpus
        argv = launch.python("proof", "--level", spec.level.value, "--host-root", str(self._settings.host_root))
        argv += ["--deadline", str(within), "--device", self._settings.proof_device]
        argv += ["--expect-gpus", str(expected)] if expected is not None else []
        outcome = await self._run(OperationKind.PROVE, argv, within)
        if not isinstance(outcome, Answer):
            return NodeOperationStatus(
                phase=OperationPhase.UNCERTAIN, message=f"the proof gave no result: {_why(outcome)}"
            )
        try:
            rows = protocol.read_proof(outcome.output)
        except protocol.NonsenseError as error:
            return NodeOperationStatus(phase=OperationPhase.UNCERTAIN, message=f"the proof gave no result: {error}")
        return judge(rows)

    async def _collect(self, operation_id: str, within: float) -> NodeOperationStatus:
        folder = self._settings.state_dir / "logs" / os.path.basename(operation_id)  # noqa: PTH119 (a name, no path)
        settings = {"host_root": str(self._settings.host_root), "folder": str(folder), "deadline": within}
        outcome = await self._run(OperationKind.COLLECT_LOGS, launch.module("collect", settings), within)
        if isinstance(outcome, Answer):
            return NodeOperationStatus(phase=OperationPhase.SUCCEEDED, message=_said(outcome.output))
        return _failed(f"logs were not collected: {_why(outcome)}")

    async def _reboot(self, within: float) -> NodeOperationStatus:
        """Ask for an orderly reboot, then for an immediate one; coming back from here means that neither happened."""
        argv = launch.program(self._settings.orderly(), COMMAND_DEADLINE)
        outcome = await self._run(OperationKind.REBOOT, argv, min(COMMAND_DEADLINE, within))
        said = f"the command for an orderly reboot failed ({_why(outcome)})"
        if isinstance(outcome, Answer | Nonsense):  # It need not print anything.
            patience = min(self._settings.orderly_reboot, within / 2)
            await asyncio.sleep(patience)
            said = f"the machine was still up {patience:.0f} s after an orderly reboot was asked for"
        try:
            log.warning("rebooting by sysrq", why=said)
            await self._sysrq()
        except OSError as error:
            return _failed(f"{said}, and sysrq cannot be used: {error.strerror or error}")
        await asyncio.sleep(within)  # Until the machine goes down, or the deadline ends this.
        return _failed(f"{said}, and sysrq had no effect")

    async def _sysrq(self) -> None:
        trigger = self._settings.host_root / "proc/sysrq-trigger"
        _write(trigger, b"s")
        await asyncio.sleep(SYNC_SECONDS)
        _write(trigger, b"b")

    async def _run(self, kind: OperationKind, argv: list[str], within: float) -> Outcome:
        return await self._children[kind].run(argv, deadline=within, env=launch.environment())


def judge(rows: tuple[protocol.ProofRow, ...]) -> NodeOperationStatus:
    """Make an operation's status of a proof: BAD fails it, and what could not be tested is no pass."""
    worst = max(rows, key=lambda row: row.verdict.severity)
    phases = {Verdict.BAD: OperationPhase.FAILED, Verdict.UNKNOWN: OperationPhase.UNCERTAIN}
    phase = phases.get(worst.verdict, OperationPhase.SUCCEEDED)
    passed = f"{len(rows)} checks passed"
    return NodeOperationStatus(
        phase=phase,
        message=passed if phase is OperationPhase.SUCCEEDED else f"{worst.check}: {worst.detail}",
        results=tuple(ProofResult(check=row.check, verdict=row.verdict.value, detail=row.detail) for row in rows),
    )


def _write(path: Path, word: bytes) -> None:
    # Without O_CREAT: where there is no sysrq, a file of that name would be no sysrq either.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, word)
    finally:
        os.close(descriptor)


def _failed(message: str) -> NodeOperationStatus:
    return NodeOperationStatus(phase=OperationPhase.FAILED, message=message)


def _said(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return evidence(lines[-1]) if lines else ""


def _why(outcome: Outcome) -> str:
    match outcome:
        case Answer():
            return "it succeeded"
        case Crashed():
            last = _said(outcome.stderr.encode()) or _said(outcome.output)
            return f"{outcome.reason}: {last}" if last else outcome.reason
        case Nonsense():
            return outcome.reason
        case Hung():
            return f"no answer within {outcome.deadline:.0f} s"
        case Outstanding():
            return f"process {outcome.pid} of the last try is still there"
