"""Says again what waits for a person: an incident that nobody looks at keeps a node out for ever."""

from __future__ import annotations

import datetime as dt

from fleetwell.api.fields import words
from fleetwell.api.incident import Phase
from fleetwell.control.effects.reach import Reach, about_incident, about_node
from fleetwell.control.picture import Picture

SAID_AGAIN = dt.timedelta(hours=1)
"""The API server keeps an Event for an hour (its ``--event-ttl``): said so often, there is always one to be seen."""


class Reminders:
    """Events about incidents in NeedsPerson, on the incident and on its node.

    When each was said last is kept in memory only: a new leader says what is overdue once more.
    """

    def __init__(self, reach: Reach, picture: Picture) -> None:
        self._reach = reach
        self._picture = picture
        self._said: dict[str, dt.datetime] = {}

    def remind(self) -> None:
        """Say again what has waited for long enough."""
        now = self._reach.clock.now()
        waiting = {}
        for incident in self._picture.book.open_incidents():
            name, status = incident.metadata.name, incident.status
            if status is None or status.phase is not Phase.NEEDS_PERSON:
                continue
            waiting[name] = last = max(self._said.get(name, status.since), status.since)
            if now - last < SAID_AGAIN:
                continue
            waiting[name] = now
            text = f"Incident {name} has waited for a person for {words(now - status.since)}: {status.summary}"
            for about in (
                about_incident(name, incident.metadata.uid),
                about_node(incident.spec.node_name, incident.spec.node_uid),
            ):
                self._reach.events.record(about, Phase.NEEDS_PERSON.value, text, warning=True)
        self._said = waiting
