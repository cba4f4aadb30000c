"""Writes Incidents: what was decided stands in the cluster before anything is done about it.

Every write carries the resourceVersion that the decision rested on, and the leader's epoch. A conflict means that a
person or another leader wrote meanwhile: the object is read again and decided about anew.
"""

from __future__ import annotations

import datetime as dt
import enum

import msgspec
import structlog
from msgspec.structs import replace

from fleetwell.api.incident import IncidentStatus
from fleetwell.api.resources import INCIDENTS, Incident
from fleetwell.control.effects.operate import NODE_LABEL
from fleetwell.control.effects.reach import Reach, about_incident
from fleetwell.control.picture import Picture
from fleetwell.control.wire import incident_name
from fleetwell.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from fleetwell.kube.resource import Raw
from fleetwell.policy.opening import Opening
from fleetwell.policy.view import NodeView

log = structlog.get_logger(__name__)

LABEL_LENGTH = 63


class Written(enum.Enum):
    """What became of a write."""

    DONE = "done"
    NOTHING_NEW = "nothing new"
    DECIDE_AGAIN = "decide again"
    FAILED = "failed"


class Intents:
    """The controller's pen."""

    def __init__(self, reach: Reach, picture: Picture) -> None:
        self._reach = reach
        self._picture = picture
        self._written_at: dict[str, float] = {}
        self._asked: dict[str, str] = {}
        """Node UID → name of the incident that was asked for and has no status yet: an answer that was lost."""

    async def open(self, node: NodeView, opening: Opening) -> Written:
        """Create a node's incident, or adopt the one that a lost answer left behind, and write its first status."""
        name = self._asked.setdefault(node.uid, incident_name(node.name, node.uid, opening.status.timeline.opened))
        labels = {NODE_LABEL: node.name} if len(node.name) <= LABEL_LENGTH else {}
        spec = msgspec.to_builtins(opening.spec)
        wanted: Raw = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        try:
            incident = await self._reach.client.create(INCIDENTS, wanted)
        except AlreadyExists:
            return await self._again(name)
        except KubeError as error:
            log.warning("incident not created; nothing is done for it", node=node.name, why=str(error))
            return Written.FAILED
        return await self._put(incident, opening.status)

    async def write(self, name: str, status: IncidentStatus) -> Written:
        """Write what was decided about an incident, unless nothing that matters has changed."""
        incident = self._picture.book.incidents.get(name)
        if incident is None:
            return Written.DECIDE_AGAIN
        before, status = incident.status, replace(status, epoch=self._reach.epoch)
        if before is not None and before.epoch > self._reach.epoch:
            log.error("a later leader has written this incident; it is left alone", incident=name, epoch=before.epoch)
            return Written.FAILED
        if before is not None and (status == before or self._minor(name, before, status)):
            return Written.NOTHING_NEW
        return await self._put(incident, status)

    async def claim(self) -> None:
        """Rewrite every open incident with this leader's epoch, so that a late write of the former one fails.

        :raises KubeError: one could not be claimed; nothing may be decided before all are.
        """
        for incident in (await self._reach.client.list(INCIDENTS)).items:
            await self._claim(incident)

    def forget(self, name: str) -> None:
        """Drop what is remembered about an incident that is gone."""
        self._written_at.pop(name, None)

    async def _claim(self, incident: Incident) -> None:
        while incident.status is not None and not incident.status.phase.ended:
            claimed = replace(incident, status=replace(incident.status, epoch=self._reach.epoch))
            try:
                incident = await self._reach.client.replace(INCIDENTS, claimed, subresource="status")
            except NotFound:
                return
            except Conflict:
                try:
                    incident = await self._reach.client.get(INCIDENTS, incident.metadata.name)
                except NotFound:
                    return
            else:
                break
        self._picture.incident_seen(incident)

    def _minor(self, name: str, before: IncidentStatus, after: IncidentStatus) -> bool:
        """Whether only the wording of a wait has changed, and that was written a short time ago."""
        if _bare(before) != _bare(after):
            return False
        last = self._written_at.get(name)
        interval = self._reach.settings.minor_write_interval
        if last is None:
            last = self._written_at[name] = self._reach.clock.monotonic()
        return self._reach.clock.monotonic() - last < interval

    async def _put(self, incident: Incident, status: IncidentStatus) -> Written:
        name = incident.metadata.name
        wanted = replace(incident, status=replace(status, epoch=self._reach.epoch))
        try:
            written = await self._reach.client.replace(INCIDENTS, wanted, subresource="status")
        except (Conflict, AlreadyExists):
            return await self._again(name)
        except NotFound:
            self._picture.incident_gone(name)
            return Written.DECIDE_AGAIN
        except KubeError as error:
            log.warning("incident not written; nothing is done for it", incident=name, why=str(error))
            return Written.FAILED
        self._written_at[name] = self._reach.clock.monotonic()
        self._asked.pop(incident.spec.node_uid, None)
        self._picture.incident_seen(written)
        self._tell(written, incident.status)
        return Written.DONE

    async def _again(self, name: str) -> Written:
        try:
            self._picture.incident_seen(await self._reach.client.get(INCIDENTS, name))
        except NotFound:
            self._picture.incident_gone(name)
        except KubeError as error:
            log.warning("incident not read again", incident=name, why=str(error))
            return Written.FAILED
        return Written.DECIDE_AGAIN

    def _tell(self, incident: Incident, before: IncidentStatus | None) -> None:
        """Say each new decision in an Event of the incident."""
        status = incident.status
        if status is None:
            return
        known = set(before.decisions) if before is not None else set()
        about = about_incident(incident.metadata.name, incident.metadata.uid)
        for said in status.decisions:
            if said not in known:
                self._reach.events.record(about, status.phase.value, said.text)
                log.info(
                    "decided",
                    incident=incident.metadata.name,
                    node=incident.spec.node_name,
                    phase=status.phase.value,
                    said=said.text,
                )


_LONG_AGO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _bare(status: IncidentStatus) -> IncidentStatus:
    """Leave out what says how a wait is going rather than what was decided."""
    hold = status.hold and replace(status.hold, message="", look_again_at=_LONG_AGO)
    return replace(status, hold=hold, summary="")
