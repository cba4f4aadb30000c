"""The agent's own Node and NodeHealth, and what was done to the node by its operations."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from fleetwell.api.node_operation import OperationKind, OperationPhase
from fleetwell.api.resources import NODE_HEALTHS, NodeHealth, NodeOperation
from fleetwell.health.stimuli import RemedyDone
from fleetwell.health.vocabulary import HOST, Component, Recovery
from fleetwell.kube.backoff import Backoff
from fleetwell.kube.client import Client
from fleetwell.kube.errors import KubeError, NotFound
from fleetwell.kube.objects import Node
from fleetwell.kube.resource import NODES
from fleetwell.probes.inventory import Expected

log = structlog.get_logger(__name__)

INSTANCE_TYPE = "node.kubernetes.io/instance-type"


class AnotherNodeError(RuntimeError):
    """The Node object under this name is not the one that this agent began with: it has to begin anew."""


async def first_read(client: Client, name: str) -> tuple[Node, NodeHealth | None]:
    """Read the own Node and NodeHealth, however long it takes: nothing is published before they are known."""
    backoff = Backoff(0.5, 15.0)
    while True:
        try:
            node = await client.get(NODES, name)
            with contextlib.suppress(NotFound):
                health: NodeHealth = await client.get(NODE_HEALTHS, name)
                return node, health
        except KubeError as error:
            pause = backoff.after_failure()
            log.warning("own node not read yet", why=str(error), retry_in=round(pause, 1))
            await asyncio.sleep(pause)
        else:
            return node, None


def policys_word(health: NodeHealth) -> Expected:
    """Read what the policy says that the node must have, as the controller wrote it."""
    word = health.spec.expected
    return Expected(gpus=word.gpus, nics=word.efa, infiniband=word.infiniband)


def remedy_done(operation: NodeOperation) -> RemedyDone | None:
    """Tell triage what an operation that has ended did; None where it changed nothing or failed."""
    if operation.status.phase is not OperationPhase.SUCCEEDED:
        return None
    spec = operation.spec
    match spec.kind:
        case OperationKind.PROVE:
            return RemedyDone(recovery=Recovery.NONE, component=HOST, proof_passed=True)
        case OperationKind.RESET_GPU:
            return RemedyDone(recovery=Recovery.RESET_GPU, component=Component(spec.component), proof_passed=False)
        case OperationKind.REBOOT:
            return RemedyDone(recovery=Recovery.REBOOT, component=HOST, proof_passed=False)
        case _:
            return None  # Collecting logs changes nothing.
