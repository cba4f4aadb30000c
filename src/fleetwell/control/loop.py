"""The loop: over what has changed and whose time has come, decide, admit, write, and only then act.

Level-triggered: a pass takes the picture as it is and never asks what happened. An episode that was missed, failed or
conflicted is simply looked at again. Passes do not overlap, so that what one admits is in the budget of the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog

from fleetwell.api.incident import IncidentStatus, Phase, Said, Timeline
from fleetwell.api.resources import Incident
from fleetwell.control.dispatch import CountPods, Dispatcher, Wanted
from fleetwell.control.effects.reach import Reach
from fleetwell.control.intents import Intents, Written
from fleetwell.control.picture import Picture
from fleetwell.policy import story
from fleetwell.policy.budget import admit
from fleetwell.policy.case import Step
from fleetwell.policy.instructions import Granted, Request, Restore
from fleetwell.policy.ladder import answer, decide
from fleetwell.policy.opening import Opening, opens
from fleetwell.policy.view import Episode, NodeView
from fleetwell.policy.wanted import desired

log = structlog.get_logger(__name__)

SHORTEST_WAIT = dt.timedelta(seconds=0.5)
"""No episode is looked at again sooner by the clock alone."""
RETRY = dt.timedelta(seconds=2)


@dataclass
class _Decided:
    """What one pass has decided about one episode."""

    status: IncidentStatus
    request: Request | None = None


@dataclass
class _Pass:
    now: dt.datetime
    decided: dict[str, _Decided] = field(default_factory=dict)


class Loop:
    """Decides for the whole fleet. ``changed`` is set by whoever makes something dirty."""

    def __init__(self, reach: Reach, picture: Picture, changed: asyncio.Event | None = None) -> None:
        self.changed = changed or asyncio.Event()
        self.picture = picture
        self.intents = Intents(reach, picture)
        self.dispatcher = Dispatcher(reach, picture, on_result=self.changed.set)
        self._reach = reach
        self._wakes: dict[str, float] = {}
        """Incident → monotonic time at which it is looked at again: a wall clock that is set back delays nothing."""
        self._node_wakes: dict[str, float] = {}
        self._waiting: dict[str, Request] = {}

    async def run(self) -> None:
        """Pass after pass, for as long as this is not cancelled."""
        while True:
            self.changed.clear()
            await self.one_pass()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.next_due()):
                    await self.changed.wait()

    async def one_pass(self) -> None:
        """Look once at all that is dirty or due."""
        now, mono = self._reach.clock.now(), self._reach.clock.monotonic()
        picture = self.picture
        dirty_nodes = picture.take_dirty_nodes() | _woken(self._node_wakes, mono)
        await self._open_for(dirty_nodes, now)
        due = picture.take_dirty_episodes() | _woken(self._wakes, mono)
        due |= {name for node in dirty_nodes for name in self._still_marking(node)}
        this = _Pass(now)
        unborn = [
            it for name in sorted(due) if (it := picture.book.incidents.get(name)) is not None and it.status is None
        ]
        for name in sorted(due):
            self._decide(this, name)
        self._admit(this)
        await self._write(this, unborn)
        nodes = dirty_nodes | {self._node_of(name) for name in due | this.decided.keys()}
        for node in nodes - {""}:
            self.dispatcher.want(node, self._wanted(node, now))
        self.dispatcher.start_due()
        if picture.dirty:
            self.changed.set()

    def next_due(self) -> float:
        """Seconds until something is due by the clock."""
        mono, effect = self._reach.clock.monotonic(), self.dispatcher.next_due()
        waits = [at - mono for at in (*self._wakes.values(), *self._node_wakes.values())]
        waits += [effect - mono] if effect is not None else []
        return max(0.0, min(waits, default=self._reach.settings.longest_wait))

    # The steps of a pass

    def _still_marking(self, node: str) -> list[str]:
        """Name the ended episodes of a node that have not yet given up their marks."""
        view = self.picture.views.get(node)
        past = self.picture.book.past_episodes(node, view.uid) if view is not None else []
        return [episode.name for episode in past if episode.status.quarantine is not None]

    async def _open_for(self, nodes: Iterable[str], now: dt.datetime) -> None:
        work = []
        for name in sorted(nodes):
            view = self.picture.views.get(name)
            if view is None or any(it.spec.node_uid == view.uid for it in self.picture.book.open_incidents(name)):
                continue
            opening = self._opening(view, now)
            if opening is not None:
                work.append((name, self.intents.open(view, opening)))
        for name, outcome in await self._all(work):
            if outcome in {Written.FAILED, Written.DECIDE_AGAIN}:
                self._node_wakes[name] = self._in(RETRY)

    def _opening(self, view: NodeView, now: dt.datetime) -> Opening | None:
        book = self.picture.book
        past, of_machine = book.past_episodes(view.name, view.uid), book.of_machine(view.machine)
        return opens(view, self.picture.policy_of(view.name), now, past, of_machine)

    def _decide(self, this: _Pass, name: str) -> None:
        """Let the ladder decide; an ended episode only gives up its marks."""
        self._waiting.pop(name, None)
        episode = self.picture.book.episode(name)
        if episode is None:
            if name not in self.picture.book.incidents:
                self.intents.forget(name)
            return
        try:
            elder = "" if episode.status.phase.ended else self.picture.book.elder(episode)
            step = decide(episode, self.picture.around(episode, this.now), this.now)
            if elder:
                text = f"closed: incident {elder} of the same node was opened earlier and goes on"
                step = Step(status=story.move(episode.status, Phase.CLEARED, this.now, text))
        except Exception:
            # One episode that cannot be decided must not keep the others, and every release, from being.
            log.exception("an episode cannot be decided; it stays as it is", incident=name, node=episode.spec.node_name)
            self._wakes[name] = self._in(RETRY * 15)
            return
        this.decided[name] = _Decided(step.status, step.request)
        if step.request is not None:
            self._waiting[name] = step.request
        if not step.status.phase.ended:
            longest = dt.timedelta(seconds=self._reach.settings.longest_wait)
            wait = min(step.wake - this.now, longest) if step.wake is not None else longest
            self._wakes[name] = self._in(max(wait, SHORTEST_WAIT))

    def _admit(self, this: _Pass) -> None:
        """Ask budget and pace for all that waits, not only for what was decided now: leave goes to the longest wait."""
        self._waiting = {name: it for name, it in self._waiting.items() if self._open(name)}
        if not self._waiting:
            return
        fleet = self.picture.fleet(this.now)
        answers = admit(tuple(self._waiting.values()), fleet, this.now)
        for name, given in answers.items():
            if name not in this.decided:
                if not isinstance(given, Granted):
                    continue
                self._decide(this, name)
            decided = this.decided.get(name)
            episode = self.picture.book.episode(name)
            if decided is None or decided.request is None or episode is None:
                continue
            standing = Episode(name=name, uid=episode.uid, spec=episode.spec, status=decided.status)
            around = self.picture.around(episode, this.now)
            decided.status = answer(standing, decided.request, given, around, this.now)
            if isinstance(given, Granted):
                self._waiting.pop(name, None)
            else:
                wake = self._in(max(given.look_again_at - this.now, SHORTEST_WAIT))
                self._wakes[name] = min(self._wakes.get(name, wake), wake)

    def _in(self, wait: dt.timedelta) -> float:
        return self._reach.clock.monotonic() + wait.total_seconds()

    def _open(self, name: str) -> bool:
        episode = self.picture.book.episode(name)
        return episode is not None and not episode.status.phase.ended

    async def _write(self, this: _Pass, unborn: list[Incident]) -> None:
        work = [(name, self.intents.write(name, decided.status)) for name, decided in this.decided.items()]
        work += [
            (it.metadata.name, self.intents.write(it.metadata.name, self._first_status(it, this.now))) for it in unborn
        ]
        for name, outcome in await self._all(work):
            if outcome in {Written.DONE, Written.DECIDE_AGAIN}:
                # What was written may lead on at once; what conflicted is decided anew.
                self.picture.book.dirty.add(name)
            elif outcome is Written.FAILED:
                self._wakes[name] = self._in(RETRY)

    def _first_status(self, incident: Incident, now: dt.datetime) -> IncidentStatus:
        """Give an incident that was created, and left without a status by a crash, the one that it should have had."""
        node, spec = incident.spec.node_name, incident.spec
        view = self.picture.views.get(node)
        opening = None
        if view is not None and view.uid == spec.node_uid:
            opening = self._opening(view, now)
        if opening is not None:
            return opening.status
        text = "nothing is found any more; the episode had only just been opened when the controller ended"
        return IncidentStatus(
            phase=Phase.CLEARED,
            since=now,
            timeline=Timeline(opened=now, ended=now),
            decisions=(Said(at=now, text=text),),
        )

    async def _all(self, work: list[tuple[str, Coroutine[Any, Any, Written]]]) -> list[tuple[str, Written]]:
        slots = asyncio.Semaphore(self._reach.settings.writers)

        async def one(name: str, doing: Coroutine[Any, Any, Written]) -> tuple[str, Written]:
            async with slots:
                return name, await doing

        return await asyncio.gather(*(one(name, doing) for name, doing in work))

    # What follows for a node

    def _wanted(self, node: str, now: dt.datetime) -> Wanted:
        """Work out what must be true of a node, from what is written about its episodes."""
        wanted: list[Any] = []
        view = self.picture.views.get(node)
        still_open = list(self.picture.book.open_incidents(node))
        for incident in still_open:
            episode = self.picture.book.episode(incident.metadata.name)
            if episode is None or episode.status.epoch != self._reach.epoch:
                continue
            around = self.picture.around(episode, now)
            wanted += desired(episode, around)
            if around.node is not None and episode.status.phase is Phase.SUSPECTED:
                wanted.append(CountPods(node, episode.name))
        if view is not None and not any(it.spec.node_uid == view.uid for it in still_open):
            wanted += self._left_behind(node, view.uid, now)
        return tuple(wanted)

    def _left_behind(self, node: str, uid: str, now: dt.datetime) -> list[Any]:
        """Marks on a node with no open episode, whatever became of theirs: giving back needs nobody's leave."""
        wanted: list[Any] = []
        for episode in self.picture.book.past_episodes(node, uid):
            wanted += desired(episode, self.picture.around(episode, now))
        marked_for = self.picture.marked_for(node)
        restore = Restore(node=node, uid=uid, incident=marked_for)
        return wanted if not marked_for or restore in wanted else [*wanted, restore]

    def _node_of(self, name: str) -> str:
        incident = self.picture.book.incidents.get(name)
        return incident.spec.node_name if incident is not None else ""


def _woken(wakes: dict[str, float], mono: float) -> set[str]:
    woken = {name for name, at in wakes.items() if at <= mono}
    for name in woken:
        del wakes[name]
    return woken
