"""How a status is written, so that nothing is said twice and nothing is forgotten."""

from fleetwell.api.incident import Hold, IncidentStatus, Phase, Timeline
from fleetwell.policy import story
from policy.builders import START, minutes

BEGUN = IncidentStatus(phase=Phase.TOLERATING, since=START, timeline=Timeline(opened=START))


def held(reason: str = "Budget", message: str = "1 of 6 out", at: float = 0.0) -> Hold:
    now = START + minutes(at)
    return Hold(reason=reason, message=message, since=now, look_again_at=now + minutes(1))


def test_the_same_thing_said_twice_in_a_row_is_said_once() -> None:
    once = story.say(BEGUN, START, "draining")
    assert story.say(once, START + minutes(1), "draining") is once
    again = story.say(story.say(once, START, "drained"), START, "draining")
    assert [said.text for said in again.decisions] == ["draining", "drained", "draining"]


def test_the_latest_twenty_decisions_are_kept() -> None:
    status = BEGUN
    for number in range(25):
        status = story.say(status, START, str(number))
    assert [said.text for said in status.decisions] == [str(number) for number in range(5, 25)]


def test_the_same_hold_keeps_its_beginning_and_is_said_once_while_its_numbers_change() -> None:
    first = story.hold(BEGUN, held(), START)
    later = story.hold(first, held(message="2 of 6 out", at=0.5), START + minutes(0.5))
    assert later.hold is not None
    assert (later.hold.since, later.hold.message) == (START, "2 of 6 out")
    assert later.hold.look_again_at == START + minutes(1)
    assert later.decisions == first.decisions
    at_last = story.hold(later, held(at=1), START + minutes(1))
    assert at_last.hold is not None
    assert at_last.hold.look_again_at == START + minutes(2)


def test_another_hold_begins_anew_and_is_said() -> None:
    status = story.hold(story.hold(BEGUN, held(), START), held("Pace", "1 of 1 under way", 1), START + minutes(1))
    assert status.hold is not None
    assert status.hold.since == START + minutes(1)
    assert [said.text for said in status.decisions] == ["held (Budget): 1 of 6 out", "held (Pace): 1 of 1 under way"]


def test_a_phase_begins_without_the_holds_and_announcements_of_the_one_before() -> None:
    status = story.coming(story.hold(BEGUN, held(), START), "quarantine", START + minutes(5))
    moved = story.move(status, Phase.QUARANTINED, START + minutes(5), "quarantined")
    assert (moved.phase, moved.since, moved.hold, moved.next) == (Phase.QUARANTINED, START + minutes(5), None, None)
    assert moved.timeline.quarantined == START + minutes(5)
    assert moved.timeline.ended is None


def test_a_stage_is_reached_once_and_an_end_is_noted() -> None:
    status = story.move(BEGUN, Phase.SUSPECTED, START + minutes(1), "suspected")
    status = story.move(status, Phase.QUARANTINED, START + minutes(2), "more than a suspicion now")
    assert status.timeline.quarantined == START + minutes(1)
    assert story.move(status, Phase.CLEARED, START + minutes(3), "gone").timeline.ended == START + minutes(3)


def test_bad_time_adds_up_and_a_clock_that_steps_back_takes_none_away() -> None:
    running = IncidentStatus(
        phase=Phase.TOLERATING, since=START, timeline=Timeline(opened=START), bad_seconds=60.0, counted_at=START
    )
    assert story.bad_for(running, START + minutes(1)) == 120
    assert story.bad_for(running, START - minutes(1)) == 60


def test_one_line_says_what_is_wrong_and_what_is_waited_for_or_said_last() -> None:
    status = story.coming(story.say(BEGUN, START, "opened"), "quarantine", START)
    assert story.summarise(status, "X on gpu/1").summary == "X on gpu/1; next: quarantine"
    assert story.summarise(story.hold(status, held(), START), "X").summary == "X; held: 1 of 6 out"
    ended = story.move(status, Phase.CLEARED, START, "gone by itself")
    assert story.summarise(story.coming(ended, "nothing", START), "X").summary == "X; gone by itself"
    assert story.summarise(BEGUN, "X").summary == "X"
    assert len(story.summarise(BEGUN, "X" * 300).summary) == 240
