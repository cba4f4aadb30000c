"""Tells each agent what the policy of its node says that the node must have, in the spec of its NodeHealth.

An agent reads no policies: which of them governs its node is known here. It is told in every mode, since it only says
what to look for. On a tie of two policies nothing is changed, neither for the one nor for the other.
"""

from __future__ import annotations

import asyncio

import structlog

from fleetwell.api.policy import Expected
from fleetwell.api.resources import NODE_HEALTHS
from fleetwell.control.effects.reach import Reach
from fleetwell.control.picture import Picture
from fleetwell.control.settings import MANAGER
from fleetwell.kube.client import PatchKind
from fleetwell.kube.errors import Conflict, KubeError, NotFound

log = structlog.get_logger(__name__)

TOLD_AT_ONCE = 16
NOTHING = Expected()


async def tell_expectations(reach: Reach, picture: Picture) -> None:
    """Write what is expected into each NodeHealth that says something else; one that is not there is not made."""
    slots = asyncio.Semaphore(TOLD_AT_ONCE)

    async def one(node: str, wanted: Expected) -> None:
        async with slots:
            try:
                await _tell(reach, node, wanted, picture.health_version(node))
            except (NotFound, Conflict):
                return  # its agent makes a new one, or has just written; that is told in the next round
            except KubeError as error:
                log.warning("what is expected of a node not written; tried again", node=node, why=str(error))

    await asyncio.gather(*(one(node, wanted) for node, wanted in _untold(picture).items()))


def _untold(picture: Picture) -> dict[str, Expected]:
    """Give what must be written: by node, where its NodeHealth differs from what its policy says."""
    found: dict[str, Expected] = {}
    for node in sorted(picture.nodes.keys() & picture.healths.keys()):
        under = picture.governed(node)
        if under.problem:
            continue
        policy = picture.policies.get(under.policy)
        wanted = policy.spec.expected if policy is not None else NOTHING
        if picture.healths[node].spec.expected != wanted:
            found[node] = wanted
    return found


async def _tell(reach: Reach, node: str, wanted: Expected, version: str) -> None:
    # A merge patch keeps what it does not name: what the policy leaves out any more has to be taken away by null.
    fields = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
    spec = {"expected": None if wanted == NOTHING else fields}
    body = {"metadata": {"resourceVersion": version}, "spec": spec}
    await reach.client.patch(NODE_HEALTHS, node, body, kind=PatchKind.MERGE, field_manager=MANAGER)
    log.info("told what is expected", node=node, **fields)
