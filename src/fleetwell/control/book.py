"""The incidents that the controller knows, with their operations and what their effects have learnt."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator

from fleetwell.api.node_health import Machine
from fleetwell.api.resources import Incident, NodeOperation
from fleetwell.policy.view import Episode, OperationView, PodsView, ReplacementView

_WEEK = dt.timedelta(days=7)


class Book:
    """Incidents by name, node and machine. ``dirty`` names those that something has changed about."""

    def __init__(self) -> None:
        self.incidents: dict[str, Incident] = {}
        self.dirty: set[str] = set()
        self._of_node: defaultdict[str, set[str]] = defaultdict(set)
        self._open: defaultdict[str, set[str]] = defaultdict(set)
        self._by_machine: defaultdict[str, set[str]] = defaultdict(set)
        self._just_ended: dict[str, dt.datetime] = {}
        self._operations: defaultdict[str, dict[str, OperationView]] = defaultdict(dict)
        self._pods: dict[str, PodsView] = {}
        self._replacements: dict[str, ReplacementView] = {}

    # What is seen

    def incident_seen(self, incident: Incident) -> bool:
        """Take an incident; False when what we have is as new, as after a write of our own."""
        name, node = incident.metadata.name, incident.spec.node_name
        before = self.incidents.get(name)
        if before is not None and before.metadata.uid == incident.metadata.uid and not _newer(incident, before):
            return False
        self.incidents[name] = incident
        self._of_node[node].add(name)
        status = incident.status
        if status is None or not status.phase.ended:
            self._open[node].add(name)
        else:
            self._open[node].discard(name)
            self._just_ended[name] = status.timeline.ended or status.since
            self._pods.pop(name, None)
            self._replacements.pop(name, None)
        if status is not None:
            self._by_machine[_machine_key(incident)].add(name)
        self.dirty.add(name)
        return True

    def incident_gone(self, name: str) -> Incident | None:
        """Take an incident away, and give it as it was last seen."""
        incident = self.incidents.pop(name, None)
        for known in (self._pods, self._replacements, self._operations, self._just_ended):
            known.pop(name, None)
        self.dirty.discard(name)
        if incident is not None:
            node = incident.spec.node_name
            self._open[node].discard(name)
            self._of_node[node].discard(name)
            self._by_machine[_machine_key(incident)].discard(name)
        return incident

    def operation_seen(self, operation: NodeOperation) -> None:
        """Take an operation as it is now."""
        name, incident = operation.metadata.name, operation.spec.incident
        view = OperationView(name=name, spec=operation.spec, status=operation.status)
        if self._operations[incident].get(name) != view:
            self._operations[incident][name] = view
            self.dirty.add(incident)

    def operation_gone(self, operation: NodeOperation) -> None:
        """Take an operation away."""
        if self._operations[operation.spec.incident].pop(operation.metadata.name, None):
            self.dirty.add(operation.spec.incident)

    def pods_counted(self, incident: str, pods: PodsView) -> None:
        """Take what a drain's sweep has counted."""
        self._pods[incident] = pods
        self.dirty.add(incident)

    def replacement_seen(self, incident: str, replacement: ReplacementView) -> None:
        """Take what the provider says of an order."""
        if self._replacements.get(incident) != replacement:
            self._replacements[incident] = replacement
            self.dirty.add(incident)

    def touch(self, node: str) -> None:
        """Mark a node's open incidents as dirty."""
        self.dirty.update(self._open[node])

    def touch_all(self) -> None:
        """Mark every open incident as dirty."""
        self.dirty.update(self.open_names())

    # What is asked

    def open_names(self) -> set[str]:
        """Name the incidents that are not over."""
        return {name for names in self._open.values() for name in names}

    def open_incidents(self, node: str | None = None) -> Iterator[Incident]:
        """Give the incidents that are not over, of one node or of all."""
        names = self._open[node] if node is not None else self.open_names()
        return (self.incidents[name] for name in sorted(names))

    def episode(self, name: str) -> Episode | None:
        """Give an incident as a value; None when it is not there, or has no status yet."""
        incident = self.incidents.get(name)
        if incident is None or incident.status is None:
            return None
        return Episode(name=name, uid=incident.metadata.uid, spec=incident.spec, status=incident.status)

    def elder(self, episode: Episode) -> str:
        """Name an incident of the same node UID that was opened earlier and is not over; empty when there is none.

        The controller opens no second one: it is a copy, as from a backup, and two would do everything twice.
        """
        here = (self.episode(name) for name in self._open[episode.spec.node_name])
        twins = [it for it in here if it is not None and it.spec.node_uid == episode.spec.node_uid]
        first = min(twins, key=lambda it: (it.status.timeline.opened, it.name), default=episode)
        return "" if first.name == episode.name else first.name

    def past_episodes(self, node: str, uid: str) -> list[Episode]:
        """Give the episodes of this node UID that are over, oldest first."""
        found = (self.episode(name) for name in self._of_node[node])
        ended = [it for it in found if it is not None and it.spec.node_uid == uid and it.status.phase.ended]
        return sorted(ended, key=lambda it: it.status.timeline.opened)

    def of_machine(self, machine: Machine) -> list[Episode]:
        """Give the episodes of a machine, whatever its Nodes were called, oldest first; none where it has no name."""
        names = self._by_machine.get(machine.provider_id or machine.serial, set())
        found = (self.episode(name) for name in names)
        return sorted((it for it in found if it is not None), key=lambda it: it.status.timeline.opened)

    def is_back(self, episode: Episode) -> bool:
        """Whether the machine of an episode stands in the cluster again, taken out under another Node."""
        others = (it for it in self.of_machine(episode.status.machine) if it.spec.node_uid != episode.spec.node_uid)
        return any(not it.status.phase.ended and it.status.quarantine is not None for it in others)

    def counting(self, since: dt.datetime) -> dict[str, Episode]:
        """Give the episodes that count in budget and pace: those open, and those that ended after ``since``."""
        self._just_ended = {name: at for name, at in self._just_ended.items() if at > since}
        found = ((name, self.episode(name)) for name in self.open_names() | self._just_ended.keys())
        return {name: episode for name, episode in found if episode is not None}

    def operations(self, incident: str) -> dict[str, OperationView]:
        """Give an incident's operations by name."""
        return self._operations.get(incident, {})

    def operation_named(self, name: str) -> OperationView | None:
        """Give an operation whose incident is not known."""
        return next((found[name] for found in self._operations.values() if name in found), None)

    def pods(self, incident: str) -> PodsView | None:
        """Give what was counted last for an incident that is open."""
        return self._pods.get(incident)

    def replacement(self, incident: str) -> ReplacementView | None:
        """Give what the provider said last."""
        return self._replacements.get(incident)

    def machine_attempts(self, episode: Episode, now: dt.datetime) -> int:
        """Count the attempts of other episodes on the same machine in the last seven days."""
        machine = episode.status.machine
        others = self._by_machine.get(machine.provider_id or machine.serial or episode.spec.node_uid, set())
        found = (self.incidents[name].status for name in others if name != episode.name)
        attempts = (attempt for status in found if status is not None for attempt in status.attempts)
        return sum(1 for attempt in attempts if attempt.started_at > now - _WEEK)


def _machine_key(incident: Incident) -> str:
    machine = incident.status.machine if incident.status else None
    return (machine and (machine.provider_id or machine.serial)) or incident.spec.node_uid


def _newer(one: Incident, other: Incident) -> bool:
    """Whether ``one`` is a later state; where versions are no numbers, the one that comes later is."""
    ours, theirs = one.metadata.resource_version, other.metadata.resource_version
    if ours.isdecimal() and theirs.isdecimal():
        return int(ours) > int(theirs)
    return ours != theirs
