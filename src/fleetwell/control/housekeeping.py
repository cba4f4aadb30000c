"""What has to be done from time to time, beside the deciding.

Silent agents, policy statuses, what agents are told to expect, what waits for a person, old incidents.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt

import structlog

from fleetwell.api.resources import INCIDENTS, NODE_OPERATIONS
from fleetwell.control.effects.reach import Reach
from fleetwell.control.expectations import tell_expectations
from fleetwell.control.picture import Picture
from fleetwell.control.policies import PolicyReports
from fleetwell.control.reminders import Reminders
from fleetwell.control.silence import silence, to_silence
from fleetwell.kube.errors import Conflict, KubeError, NotFound

log = structlog.get_logger(__name__)

SILENCED_AT_ONCE = 16
KEPT_OPERATIONS = 50
"""Ended operations that an open incident keeps: more than the attempts and proofs that its status remembers."""


class Housekeeping:
    """The controller's chores. Each is level-triggered: one that failed is done in the next round."""

    def __init__(self, reach: Reach, picture: Picture) -> None:
        self.policies = PolicyReports(reach, picture)
        self.reminders = Reminders(reach, picture)
        self._reach = reach
        self._picture = picture

    async def round(self) -> None:
        """Do all chores once; one that fails does not keep the others from being done."""
        self.reminders.remind()
        for name, chore in (
            ("tolerations", self.policies.check_tolerations),
            ("pruning", self.prune),
        ):
            try:
                await chore()
            except KubeError as error:
                log.warning("chore failed; it is done again in the next round", chore=name, why=str(error))

    async def watch(self) -> None:
        """Do what people wait to see: silent agents in conditions, counts and problems in policies, expectations."""
        await self.silence()
        await self.policies.report()
        try:
            await self.tell_expectations()
        except KubeError as error:
            log.warning("agents not told what to expect; done again in the next round", why=str(error))

    async def silence(self) -> None:
        """Say of agents that have fallen silent that nothing is known of their nodes."""
        self._picture.agents_fallen_silent()
        silent = [
            name
            for name in sorted(self._picture.freshness.silent)
            if (node := self._picture.nodes.get(name)) is not None and to_silence(node)
        ]
        slots = asyncio.Semaphore(SILENCED_AT_ONCE)

        async def one(name: str) -> None:
            async with slots:
                try:
                    await silence(self._reach, name, self._picture.freshness.renewed_at(name))
                except KubeError as error:
                    log.warning("conditions of a silent agent not set; tried again", node=name, why=str(error))

        await asyncio.gather(*(one(name) for name in silent))

    async def tell_expectations(self) -> None:
        """Let every agent know what the policy of its node says that must be there."""
        await tell_expectations(self._reach, self._picture)

    async def prune(self) -> None:
        """Delete incidents that ended long ago and whose node wears nothing of theirs."""
        limit = self._reach.clock.now() - dt.timedelta(seconds=self._reach.settings.keep_ended)
        for incident in list(self._picture.book.incidents.values()):
            status, meta = incident.status, incident.metadata
            if status is None or not status.phase.ended or (status.timeline.ended or status.since) > limit:
                continue
            if self._picture.marked_for(incident.spec.node_name) == meta.name:
                continue
            try:
                await self._reach.client.delete(
                    INCIDENTS, meta.name, uid=meta.uid, resource_version=meta.resource_version
                )
            except (NotFound, Conflict):
                continue
            log.info("pruned", incident=meta.name, ended=str(status.timeline.ended))
        await self._prune_operations()

    async def _prune_operations(self) -> None:
        """Delete operations that ended long ago of incidents that stay open: a new node may be tried for weeks."""
        for incident in self._picture.book.open_names():
            ended = [it for it in self._picture.book.operations(incident).values() if it.status.phase.ended]
            for old in sorted(ended, key=lambda it: it.spec.deadline)[:-KEPT_OPERATIONS]:
                with contextlib.suppress(NotFound):
                    await self._reach.client.delete(NODE_OPERATIONS, old.name)
