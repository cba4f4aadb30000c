from __future__ import annotations

from itertools import count

from fleetwell.train.generations import Generations
from fleetwell.train.protocol import (
    Concluded,
    Draining,
    End,
    Exited,
    Failure,
    Hello,
    History,
    Outcome,
    Ready,
    Reason,
    Refused,
    Start,
    Status,
    WorkerFailed,
)
from fleetwell.train.seats import Drop, Instruction, Record, Send, Stage, Terms


class Run:
    """Two launchers, a clock that is moved by hand, and what the coordinator told and recorded."""

    def __init__(self, *, max_restarts: int = 1, history: History | None = None, orphan: int = 0) -> None:
        self.now = 100.0
        self.said: list[Instruction] = []
        terms = Terms(2, "job", max_restarts, forming_limit=60, silence_limit=10, ending_limit=15)
        self.core = Generations(
            terms,
            coordinator="c1",
            number_after=lambda least: least,
            history=history or History(),
            orphan=orphan,
            now=self.now,
        )

    @property
    def stage(self) -> Stage:
        return self.core.stage

    def hello(self, node: int, *, name: str | None = None, running: int = 0, history: History | None = None) -> None:
        hello = Hello(node, 2, 2, "job", name or f"launcher-{node}", running, history or History())
        self.said += self.core.hello(node, hello, self.now)

    def ready(self, node: int) -> None:
        self.said += self.core.ready(node, Ready("host", 4000 + node), self.now)

    def both_start(self) -> int:
        for node in (0, 1):
            self.hello(node)
            self.ready(node)
        assert self.stage is Stage.RUNNING
        return self.core.history.generation

    def exited(self, node: int, outcome: Outcome, last: int = 0, saved: int = 0) -> None:
        exited = Exited(self.core.history.generation, outcome, last, saved)
        self.said += self.core.exited(node, exited, self.now)

    def failed(self, node: int, rank: int, line: str = "", code: int = 1) -> None:
        failure = Failure(node, rank, 1, code, f"exited with code {code}", line)
        self.said += self.core.worker_failed(WorkerFailed(self.core.history.generation, failure), self.now)

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.said += self.core.tick(self.now)

    def told(self, node: int, kind: type) -> list[object]:
        messages = [item.message for item in self.said if isinstance(item, Send) and item.node == node]
        return [message for message in messages if isinstance(message, kind)]

    def events(self, name: str) -> list[dict[str, object]]:
        return [item.fields for item in self.said if isinstance(item, Record) and item.event == name]

    def concluded(self, node: int = 0) -> Concluded:
        last = self.told(node, Concluded)[-1]
        assert isinstance(last, Concluded)
        return last


def test_a_generation_starts_when_all_nodes_are_there_and_not_before() -> None:
    run = Run()
    run.hello(0)
    run.ready(0)
    assert run.stage == Stage.FORMING
    run.hello(1)
    run.ready(1)
    assert run.told(1, Start) == [Start(1, "host", 4000, 0, (2, 2))]


def test_the_first_failure_ends_all_and_is_the_root_whatever_follows() -> None:
    run = Run()
    run.both_start()
    run.failed(1, 2, "ValueError: nan")
    run.failed(0, 0, "RuntimeError: Connection closed by peer")
    assert run.told(0, End)
    run.exited(1, Outcome.FAILED, 7)
    assert run.stage == Stage.ENDING
    run.exited(0, Outcome.FAILED, 6)
    concluded = run.concluded()
    assert (concluded.reason, concluded.last_step, concluded.restarts) == (Reason.FAILURE, 7, 1)
    assert concluded.root is not None
    assert concluded.root.rank == 2


def test_a_peers_complaint_that_arrives_first_is_not_the_root() -> None:
    run = Run()
    run.both_start()
    run.failed(0, 0, "RuntimeError: Connection closed by peer [10.0.0.2]:5000")
    run.failed(1, 3, "ValueError: bad batch", code=4)
    run.exited(0, Outcome.FAILED)
    run.exited(1, Outcome.FAILED)
    root = run.concluded().root
    assert root is not None
    assert root.rank == 3


def test_restarts_are_spent_by_failures_only_and_the_last_one_finishes_with_the_roots_code() -> None:
    run = Run(max_restarts=1)
    run.both_start()
    for spent in (1, 2):
        run.failed(1, 2, code=17)
        run.exited(0, Outcome.ENDED)
        run.exited(1, Outcome.FAILED)
        if spent == 1:
            run.ready(0)
            run.ready(1)
    assert run.stage == Stage.FINISHED
    assert [run.concluded(node).finish for node in (0, 1)] == [17, 17]


def test_a_drain_costs_no_restart_and_waits_for_the_successor() -> None:
    run = Run(max_restarts=0)
    run.both_start()
    run.said += run.core.draining(1, Draining(25, can_save=True), run.now)
    assert not run.told(0, End)
    run.exited(0, Outcome.DRAINED, 40, 40)
    run.exited(1, Outcome.DRAINED, 40, 40)
    assert (run.concluded().reason, run.concluded().saved_step, run.concluded().finish) == (Reason.DRAIN, 40, None)
    run.ready(0)
    run.ready(1)
    assert run.stage == Stage.FORMING, "a node that drains is not counted upon"
    run.said += run.core.disconnected(1, run.now)
    run.hello(1, name="successor")
    run.ready(1)
    assert len(run.told(0, Start)) == 2
    run.said += run.core.status(0, Status(2, stepping=True, step=40, saved=40, resumed=40))
    assert run.events("generation_resumed")[-1]["steps_lost"] == 0


def test_a_drain_before_anything_steps_ends_the_generation_at_once() -> None:
    run = Run()
    run.both_start()
    run.said += run.core.draining(1, Draining(25, can_save=False), run.now)
    assert run.told(0, End)
    run.exited(0, Outcome.ENDED)
    run.exited(1, Outcome.ENDED)
    assert run.concluded().reason is Reason.DRAIN
    assert "without a save" in run.concluded().why


def test_lost_steps_are_what_was_reached_beyond_the_resume() -> None:
    run = Run()
    run.both_start()
    run.failed(0, 0)
    run.exited(0, Outcome.FAILED, 57, 50)
    run.exited(1, Outcome.ENDED, 58, 50)
    run.ready(0)
    run.ready(1)
    run.said += run.core.status(1, Status(2, stepping=True, step=50, saved=50, resumed=50))
    run.said += run.core.status(0, Status(2, stepping=True, step=51, saved=50, resumed=50))
    resumed = run.events("generation_resumed")
    assert [(one["resumed_step"], one["steps_lost"]) for one in resumed] == [(50, 8)]


def test_a_launcher_that_comes_back_in_time_changes_nothing() -> None:
    run = Run()
    generation = run.both_start()
    run.said += run.core.disconnected(1, run.now)
    run.tick(5)
    run.core.seats[0].heard = run.now
    run.hello(1, running=generation, history=History(generation, 0, 9, 0))
    run.tick(9)
    assert run.stage == Stage.RUNNING
    assert not run.told(0, End)


def test_a_launcher_that_stays_away_ends_the_generation_and_spends_no_restart() -> None:
    run = Run(max_restarts=0)
    run.both_start()
    run.said += run.core.disconnected(1, run.now)
    run.core.seats[0].heard = run.now + 11
    run.tick(11)
    assert run.told(0, End)
    run.failed(0, 0, "Connection closed by peer")
    run.exited(0, Outcome.FAILED, 12)
    assert (run.concluded().reason, run.concluded().finish) == (Reason.LAUNCHER_LOST, None)


def test_a_launcher_whose_start_was_lost_with_its_connection_does_not_leave_the_others_waiting() -> None:
    run = Run()
    run.both_start()
    run.said += run.core.disconnected(1, run.now)
    run.hello(1, running=0)
    run.ready(1)
    assert run.told(0, End)
    run.exited(0, Outcome.ENDED)
    run.ready(0)
    assert run.core.history.generation == 2


def test_a_silent_launcher_is_hung_up_on() -> None:
    run = Run()
    run.both_start()
    run.core.seats[0].heard = run.now + 11
    run.tick(11)
    assert Drop(1, "not heard for 10 s") in run.said


def test_a_launcher_that_does_not_end_its_workers_is_not_waited_for_for_ever() -> None:
    run = Run()
    run.both_start()
    run.failed(0, 0)
    run.exited(0, Outcome.FAILED)
    for _ in range(2):
        for seat in run.core.seats.values():
            seat.heard = run.now + 8
        run.tick(8)
    assert run.concluded(0).reason is Reason.LAUNCHER_LOST


def test_a_new_coordinator_takes_over_what_the_launchers_remember() -> None:
    run = Run()
    run.hello(0)
    run.ready(0)
    run.hello(1, running=4, history=History(4, 1, 80, 60))
    assert run.told(1, End) == [End(4, "the generation is over at the coordinator")]
    run.said += run.core.exited(1, Exited(4, Outcome.ENDED, 82, 60), run.now)
    assert run.concluded(1).reason is Reason.LAUNCHER_LOST
    run.ready(1)
    assert [one["generation"] for one in run.events("generation_ended")] == [4]
    start = run.told(1, Start)[-1]
    assert isinstance(start, Start)
    assert (start.generation, start.restarts) == (5, 1)
    run.said += run.core.status(0, Status(5, stepping=True, step=60, saved=60, resumed=60))
    assert run.events("generation_resumed")[-1]["steps_lost"] == 22


def test_a_second_launcher_for_a_living_seat_is_refused_for_now() -> None:
    run = Run()
    run.both_start()
    run.hello(1, name="other")
    refused = run.told(1, Refused)[-1]
    assert isinstance(refused, Refused)
    assert refused.again
    assert run.stage == Stage.RUNNING


def test_a_launcher_of_another_run_or_size_is_refused_for_good() -> None:
    run = Run()
    for hello in (Hello(0, 2, 2, "other", "x"), Hello(0, 3, 2, "job", "x"), Hello(2, 2, 2, "job", "x")):
        refusal = run.core.hello(hello.node, hello, run.now)[0]
        assert isinstance(refusal, Send)
        assert isinstance(refusal.message, Refused)
        assert not refusal.message.again


def test_nodes_that_never_come_end_the_run_and_are_named() -> None:
    run = Run()
    run.hello(0)
    run.ready(0)
    for _ in range(8):
        run.core.seats[0].heard = run.now + 8
        run.tick(8)
    assert run.concluded().finish == 1
    assert "node 1 did not come within 60 s" in run.concluded().why


def test_without_a_number_no_generation_starts_and_it_is_tried_again() -> None:
    run = Run()
    numbers = count(0)
    run.core._number_after = lambda _: next(numbers)
    for node in (0, 1):
        run.hello(node)
        run.ready(node)
    assert run.stage == Stage.FORMING
    run.tick(1)
    assert run.told(0, Start)
