"""The coordinator's decisions: when a generation starts, why it ended, and what comes next. Pure.

Stimuli (a message, a lost connection, a tick) go in with the time, instructions come out. A run goes

    FORMING ── all nodes present ──► RUNNING ── first failure, lost launcher ──► ENDING
       ▲                                │ all workers ended by themselves           │ all workers ended, or their
       │                                ▼                                           ▼ launcher is gone
       └────────────── again ──────── concluded ── done, budget spent ──► FINISHED

A node that got SIGTERM drains: its launcher asks its own workers, and the ranks agree on the step among themselves (see
``stepping``), so nothing here is needed for a drain to be safe; it is only told, to say so and to wait for a successor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from . import run_events
from .protocol import (
    End,
    Exited,
    History,
    Outcome,
    Reason,
    Start,
    Status,
    Welcome,
)
from .seats import Drop, Instruction, Seat, Send, Stage, Terms, adopted, named, refusal
from .verdicts import Verdict, conclusion, judge, reached

if TYPE_CHECKING:
    from collections.abc import Callable

    from .protocol import Concluded, Draining, Failure, Hello, Ready, WorkerFailed


class Generations:
    """State of one run at its coordinator.

    ``number_after`` takes the next generation number, at least the one given; 0 when it cannot be had at this moment.
    ``orphan`` is a generation that a former coordinator started and whose end nobody recorded (0: none).
    """

    def __init__(
        self,
        terms: Terms,
        *,
        coordinator: str,
        number_after: Callable[[int], int],
        history: History,
        orphan: int,
        now: float,
    ) -> None:
        self.stage = Stage.FORMING
        self.history = history
        self.seats: dict[int, Seat] = {}
        self._terms = terms
        self._coordinator = coordinator
        self._number_after = number_after
        self._since = now
        self._failures: list[Failure] = []
        self._leaving: set[int] = set()
        self._orphan = orphan
        self._resumed_known = False
        self._concluded: Concluded | None = None

    def hello(self, node: int, hello: Hello, now: float) -> list[Instruction]:
        """Give a launcher its seat, or say why not (the instruction for a refusal is Send(node, Refused))."""
        refused = refusal(self._terms, self.seats.get(node), hello)
        if refused is not None:
            return [Send(node, refused)]
        seat = self.seats.get(node)
        out: list[Instruction] = [Send(node, Welcome(self._coordinator))]
        if seat is not None and seat.hello.launcher == hello.launcher:
            seat.hello, seat.connected, seat.heard = hello, True, now
            if self.stage is Stage.RUNNING and hello.running != self.history.generation and seat.exited is None:
                seat.bystander = True  # the word to start was lost with the connection
                out += self._end(f"node {node} missed the start", now)
        else:
            if seat is not None:
                out += self._end(f"node {node} has a new launcher", now)
            self.seats[node] = Seat(hello, now, bystander=self.stage is Stage.ENDING)
            out += self._conclude_if_over(now)
        return out + self._stray(node, hello)

    def _stray(self, node: int, hello: Hello) -> list[Instruction]:
        """Take over what the launcher remembers, and end workers of it that belong to no running generation."""
        if self.stage is Stage.FINISHED and self._concluded is not None:
            return [Send(node, self._concluded)]
        told = self._concluded is not None and self._concluded.generation == hello.running
        if self.stage is Stage.FORMING and not told and hello.running >= max(1, self.history.generation):
            self._orphan = hello.running
        self.history = adopted(self.history, hello.history)
        if not hello.running or (self.stage is Stage.RUNNING and hello.running == self.history.generation):
            return []
        return [Send(node, End(hello.running, "the generation is over at the coordinator"))]

    def ready(self, node: int, ready: Ready, now: float) -> list[Instruction]:
        """Note an idle node; form the next generation when all are."""
        self.seats[node].ready = ready
        return self._form_if_all_present(now)

    def _form_if_all_present(self, now: float) -> list[Instruction]:
        if self.stage is not Stage.FORMING or len(self.seats) < self._terms.nnodes:
            return []
        if not all(seat.present for seat in self.seats.values()):
            return []
        number = self._number_after(self.history.generation + 1)
        return self._form(number, now) if number else []

    def _form(self, number: int, now: float) -> list[Instruction]:
        out: list[Instruction] = [run_events.orphaned(self._orphan, self.history)] if self._orphan else []
        self._orphan = 0
        self.history = msgspec.structs.replace(self.history, generation=number)
        self.stage, self._since, self._resumed_known = Stage.RUNNING, now, False
        self._failures, self._leaving = [], set()
        first = self.seats[0].ready
        if first is None:
            message = "a generation formed without node 0"
            raise AssertionError(message)
        nprocs = tuple(self.seats[node].hello.nproc for node in range(self._terms.nnodes))
        start = Start(number, first.address, first.port, self.history.restarts, nprocs)
        for seat in self.seats.values():
            seat.ready, seat.exited, seat.status = None, None, Status()
        out += [Send(node, start) for node in range(self._terms.nnodes)]
        return [*out, run_events.started(start)]

    def status(self, node: int, status: Status) -> list[Instruction]:
        """Note progress; the first step of a generation says where it resumed and what was lost."""
        if self.stage is not Stage.RUNNING or status.generation != self.history.generation:
            return []
        self.seats[node].status = status
        if self._resumed_known or not status.stepping:
            return []
        self._resumed_known = True
        return [run_events.resumed(status, self.history)]

    def worker_failed(self, failed: WorkerFailed, now: float) -> list[Instruction]:
        """Note a death; the first one ends the generation everywhere."""
        if failed.generation != self.history.generation or self.stage not in {Stage.RUNNING, Stage.ENDING}:
            return []
        self._failures.append(failed.failure)
        seen = run_events.worker_failed(failed.generation, failed.failure)
        return [seen, *self._end(failed.failure.sentence(), now)]

    def draining(self, node: int, draining: Draining, now: float) -> list[Instruction]:
        """Note that a node will leave; without anything to save the generation ends at once."""
        seat = self.seats[node]
        seat.draining, seat.ready = True, None
        self._leaving.add(node)
        out: list[Instruction] = [run_events.drain_asked(self.history.generation, node, draining)]
        if self.stage is Stage.RUNNING and not draining.can_save:
            out += self._end(f"node {node} drains before anything steps: nothing to save", now)
        return out

    def exited(self, node: int, exited: Exited, now: float) -> list[Instruction]:
        """Note that a node's workers are all gone."""
        if self.stage in {Stage.FORMING, Stage.FINISHED} or exited.generation != self.history.generation:
            return [Send(node, self._farewell(exited))]
        self.seats[node].exited = exited
        out: list[Instruction] = []
        if exited.outcome in {Outcome.FAILED, Outcome.ENDED}:
            out += self._end(f"the workers of node {node} ended", now)
        return out + self._conclude_if_over(now)

    def _farewell(self, exited: Exited) -> Concluded:
        """Answer a launcher that asks again about a generation which is over."""
        theirs = History(exited.generation, 0, exited.last_step, exited.saved_step)
        self.history = adopted(self.history, theirs)
        if self._concluded is not None and exited.generation == self._concluded.generation:
            return self._concluded
        why = "the generation's coordinator is gone"
        return conclusion(exited.generation, Verdict(Reason.LAUNCHER_LOST, why), self.history)

    def disconnected(self, node: int, now: float) -> list[Instruction]:
        """A launcher's connection broke: it may come back, unless it had nothing running."""
        seat = self.seats.get(node)
        if seat is None or not seat.connected:
            return []
        seat.connected, seat.heard, seat.ready = False, now, None
        if self.stage is Stage.FORMING:
            del self.seats[node]
            return []
        return self._conclude_if_over(now)

    def tick(self, now: float) -> list[Instruction]:
        """Act on time: launchers not heard of, ends that do not come, nodes that never appear."""
        out: list[Instruction] = []
        for node, seat in list(self.seats.items()):
            if seat.connected and now - seat.heard > self._terms.silence_limit:
                out += [Drop(node, f"not heard for {self._terms.silence_limit:g} s"), *self.disconnected(node, now)]
            elif not seat.connected and self.stage is Stage.RUNNING and now - seat.heard > self._terms.silence_limit:
                out += self._end(f"the launcher of node {node} is gone", now)
        if self.stage is Stage.ENDING and now - self._since > self._terms.ending_limit:
            late = [node for node, seat in self.seats.items() if seat.connected and seat.exited is None]
            for node in late:
                out += [Drop(node, "its workers did not end in time"), *self.disconnected(node, now)]
        out += self._conclude_if_over(now)
        out += self._form_if_all_present(now)
        if self.stage is Stage.FORMING and now - self._since > self._terms.forming_limit:
            out += self._never_formed()
        return out

    def _end(self, why: str, now: float) -> list[Instruction]:
        if self.stage is not Stage.RUNNING:
            return []
        self.stage, self._since = Stage.ENDING, now
        end = End(self.history.generation, why)
        return [Send(node, end) for node, seat in self.seats.items() if seat.connected and seat.exited is None]

    def _conclude_if_over(self, now: float) -> list[Instruction]:
        if self.stage not in {Stage.RUNNING, Stage.ENDING}:
            return []
        ending = self.stage is Stage.ENDING
        gone = [ending and (seat.bystander or not seat.connected) for seat in self.seats.values()]
        if not all(seat.exited or absent for seat, absent in zip(self.seats.values(), gone, strict=True)):
            return []
        verdict = judge(self.seats, self._leaving, self._failures)
        history = reached(self.seats, self.history)
        restarts = history.restarts + (verdict.reason is Reason.FAILURE)
        finish = verdict.finish(restarts, self._terms.max_restarts)
        self.stage = Stage.FORMING if finish is None else Stage.FINISHED
        self._since = now
        self.history = msgspec.structs.replace(history, restarts=min(restarts, self._terms.max_restarts))
        self._concluded = conclusion(history.generation, verdict, self.history, finish)
        return self._announce(self._concluded)

    def _announce(self, concluded: Concluded) -> list[Instruction]:
        out: list[Instruction] = [
            Send(node, concluded) for node, seat in self.seats.items() if seat.connected and seat.exited
        ]
        abandoned = [pid for seat in self.seats.values() if seat.exited for pid in seat.exited.abandoned]
        for node, seat in list(self.seats.items()):
            seat.exited, seat.bystander, seat.status = None, False, Status()
            if not seat.connected:
                del self.seats[node]
        out.append(run_events.ended(concluded, abandoned))
        return out if concluded.finish is None else [*out, run_events.finished(concluded)]

    def _never_formed(self) -> list[Instruction]:
        missing = [node for node in range(self._terms.nnodes) if node not in self.seats]
        why = f"{named(missing)} did not come within {self._terms.forming_limit:g} s"
        self.stage = Stage.FINISHED
        verdict = Verdict(Reason.NEVER_FORMED, why)
        concluded = self._concluded = conclusion(self.history.generation, verdict, self.history, 1)
        out: list[Instruction] = [Send(node, concluded) for node, seat in self.seats.items() if seat.connected]
        return [*out, run_events.finished(concluded)]
