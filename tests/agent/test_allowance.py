"""How often somebody may ask."""

from __future__ import annotations

from fleetwell.agent.allowance import Allowance


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_let_through_and_then_one_at_a_time() -> None:
    clock = Clock()
    allowance = Allowance(3, 10.0, monotonic=clock)
    assert [allowance.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 10.0]
    clock.now = 4.0
    assert allowance.take("a") == 6.0
    clock.now = 10.0
    assert allowance.take("a") == 0.0
    assert allowance.take("a") > 0.0


def test_one_who_asks_too_much_takes_nothing_from_another() -> None:
    allowance = Allowance(1, 10.0, monotonic=Clock())
    assert allowance.take("a") == 0.0
    assert allowance.take("a") > 0.0
    assert allowance.take("b") == 0.0


def test_no_more_keys_are_kept_than_was_said() -> None:
    allowance = Allowance(1, 10.0, keys=4, monotonic=Clock())
    for number in range(100):
        allowance.take(str(number))
    assert len(allowance._left) == 4
