"""What providers announce."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fleetwell.probes import maintenance
from fleetwell.probes.maintenance_events import NOW, PREEMPTED, REBALANCE, SCHEDULED, SPOT, UPCOMING
from probes.metadata_server import MetadataServer, metadata_server

REBOOT = {
    "NotBefore": "21 Jan 2027 09:00:43 GMT",
    "NotAfter": "21 Jan 2027 09:17:23 GMT",
    "Code": "system-reboot",
    "Description": "scheduled reboot",
    "EventId": "instance-event-0d59937288b749b32",
    "State": "active",
}


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with metadata_server() as running:
        yield running


def look(server: MetadataServer, provider: str = "ec2") -> dict[str, Any]:
    read: dict[str, Any] = json.loads(maintenance.look(provider, server.url).encode())
    return read


def announce(server: MetadataServer, *events: dict[str, str]) -> None:
    server.answers[SCHEDULED] = (200, json.dumps(events))


def test_nothing_announced_is_a_whole_answer(server: MetadataServer) -> None:
    announce(server)
    assert look(server)["covered"] == ["host"]
    assert server.asked == [SCHEDULED, REBALANCE, SPOT]


def test_a_scheduled_event_is_told_with_its_due_time(server: MetadataServer) -> None:
    announce(server, REBOOT)
    (seen,) = look(server)["observations"]
    assert seen["fault"] == "MaintenanceAnnounced"
    assert seen["evidence"].startswith(
        "due=2027-01-21T09:00:43Z kind=system-reboot event=instance-event-0d59937288b749b32"
    )
    assert seen["recovery"] == "none"


@pytest.mark.parametrize(
    "over", [{"State": "canceled"}, {"State": "completed"}, {"Description": "[Canceled] scheduled reboot"}]
)
def test_an_event_that_was_cancelled_or_is_over_is_none(server: MetadataServer, over: dict[str, str]) -> None:
    announce(server, REBOOT | over)
    answer = look(server)
    assert answer["observations"] == []
    assert answer["covered"] == ["host"]


def test_the_first_that_is_due_stands_first_and_the_strongest_rules(server: MetadataServer) -> None:
    retirement = REBOOT | {"Code": "instance-retirement", "NotBefore": "2 Feb 2027 00:00:00 GMT"}
    announce(server, retirement, REBOOT)
    (seen,) = look(server)["observations"]
    assert seen["evidence"].startswith("due=2027-01-21")
    assert "kind=instance-retirement" in seen["evidence"]
    assert seen["recovery"] == "replace"


def test_a_spot_machine_that_is_taken_back_is_told(server: MetadataServer) -> None:
    server.answers[SPOT] = (200, '{"action": "terminate", "time": "2027-01-21T08:22:00Z"}')
    (seen,) = look(server)["observations"]
    assert seen["evidence"] == "due=2027-01-21T08:22:00Z kind=spot-terminate"
    server.answers = {REBALANCE: (200, '{"noticeTime": "2027-01-21T08:00:00Z"}')}
    (seen,) = look(server)["observations"]
    assert seen["evidence"].startswith("due=now kind=rebalance-recommendation")


@pytest.mark.parametrize("answer", [(500, ""), (401, ""), (200, "<html>"), (200, '{"a": 1}'), (200, '["x"]')])
def test_what_cannot_be_read_is_no_answer_and_ends_nothing(server: MetadataServer, answer: tuple[int, str]) -> None:
    server.answers[SCHEDULED] = answer
    read = look(server)
    assert read["observations"] == []
    assert read["covered"] == []
    assert SCHEDULED in read["blind"][0]


def test_a_server_without_sessions_is_asked_without(server: MetadataServer) -> None:
    server.has_tokens = False
    announce(server, REBOOT)
    assert len(look(server)["observations"]) == 1


def test_a_server_that_is_not_there_is_blind_and_no_fault() -> None:
    with metadata_server() as gone:
        pass
    answer = look(gone)
    assert (answer["observations"], answer["covered"], answer["absent"]) == ([], [], "")
    assert "does not answer" in answer["blind"][0]


def test_googles_notices_are_read(server: MetadataServer) -> None:
    server.answers = {NOW: (200, "NONE"), UPCOMING: (503, '{"error": "no notifications"}'), PREEMPTED: (200, "FALSE")}
    assert look(server, "gce")["covered"] == ["host"]
    assert look(server, "gce")["observations"] == []

    window = {
        "canReschedule": "true",
        "maintenanceStatus": "PENDING",
        "type": "SCHEDULED",
        "windowStartTime": "2027-03-01T10:00:00+00:00",
        "windowEndTime": "2027-03-01T14:00:00+00:00",
    }
    server.answers[UPCOMING] = (200, json.dumps(window))
    (seen,) = look(server, "gce")["observations"]
    assert seen["evidence"] == "due=2027-03-01T10:00:00Z kind=SCHEDULED-maintenance status=PENDING can be rescheduled"

    server.answers[NOW] = (200, "TERMINATE_ON_HOST_MAINTENANCE\n")
    (seen,) = look(server, "gce")["observations"]
    assert seen["evidence"].startswith("due=now kind=TERMINATE_ON_HOST_MAINTENANCE")

    server.answers = {NOW: (200, "NONE"), UPCOMING: (200, json.dumps(window | {"maintenanceStatus": "CANCELLED"}))}
    assert look(server, "gce")["observations"] == []

    server.answers[PREEMPTED] = (200, "TRUE")
    (seen,) = look(server, "gce")["observations"]
    assert seen["recovery"] == "replace"


@pytest.mark.parametrize(
    "answer",
    [
        (200, "NONE"),
        (200, '"NONE"\n'),  # With alt=json it is a JSON string.
        (200, "{}"),
        (200, ""),
        (404, "not found"),
        (503, '{"error": "no notifications have been received yet, try again later"}'),
        (200, '{"error": "no notifications have been received yet, try again later"}'),
    ],
)
def test_google_says_in_many_ways_that_nothing_is_planned(server: MetadataServer, answer: tuple[int, str]) -> None:
    server.answers = {NOW: (200, "NONE"), UPCOMING: answer, PREEMPTED: (200, "FALSE")}
    read = look(server, "gce")
    assert (read["observations"], read["covered"], read["blind"]) == ([], ["host"], [])


@pytest.mark.parametrize("answer", [(200, '"SOON"'), (200, "[]"), (200, '{"type": "SCHEDULED"}'), (500, "")])
def test_what_google_says_and_cannot_be_read_ends_nothing(server: MetadataServer, answer: tuple[int, str]) -> None:
    server.answers = {NOW: (200, "NONE"), UPCOMING: answer, PREEMPTED: (200, "FALSE")}
    read = look(server, "gce")
    assert (read["observations"], read["covered"]) == ([], [])
    assert UPCOMING in read["blind"][0]


SNAKE = {
    "can_reschedule": "true",
    "latest_window_start_time": "2027-03-01T10:00:01Z",
    "maintenance_reasons": ["FAILURE_GPU_XID", "FAILURE_GPU"],
    "maintenance_status": "ONGOING",
    "type": "UNSCHEDULED",
    "window_end_time": "2027-03-01T14:00:01Z",
    "window_start_time": "2027-03-01T10:00:01Z",
}


@pytest.mark.parametrize("window", [SNAKE, {"Upcoming maintenance": SNAKE}, {"upcomingMaintenance": SNAKE}])
def test_googles_window_is_read_in_snake_case_and_inside_an_object(
    server: MetadataServer, window: dict[str, object]
) -> None:
    server.answers = {NOW: (200, "NONE"), UPCOMING: (200, json.dumps(window)), PREEMPTED: (200, "FALSE")}
    (seen,) = look(server, "gce")["observations"]
    assert seen["evidence"] == (
        "due=2027-03-01T10:00:01Z kind=UNSCHEDULED-maintenance status=ONGOING "
        "reasons=FAILURE_GPU_XID,FAILURE_GPU can be rescheduled"
    )


def test_an_event_without_an_end_and_one_with_another_form_of_time_are_told_with_their_time(
    server: MetadataServer,
) -> None:
    stop = {
        "NotBefore": "1 Jan 2027 02:00:00 GMT",
        "Code": "instance-stop",
        "Description": "The instance is running on degraded hardware",
        "EventId": "instance-event-07a1c1c08b77d4bf1",
        "State": "active",
    }
    announce(server, stop)
    (seen,) = look(server)["observations"]
    assert seen["evidence"].startswith("due=2027-01-01T02:00:00Z kind=instance-stop")
    assert seen["recovery"] == "replace"
    announce(server, stop | {"NotBefore": "2027-01-01T02:00:00Z"})
    assert look(server)["observations"][0]["evidence"].startswith("due=2027-01-01T02:00:00Z")


def test_of_two_events_the_one_that_is_over_is_left_out(server: MetadataServer) -> None:
    done = REBOOT | {"Code": "instance-retirement", "State": "completed", "Description": "[Completed] retired"}
    announce(server, done, REBOOT)
    (seen,) = look(server)["observations"]
    assert "instance-retirement" not in seen["evidence"]
    assert seen["recovery"] == "none"


def test_a_server_that_wants_a_stroke_at_the_end_of_a_folder_gets_one(server: MetadataServer) -> None:
    name, _, query = UPCOMING.partition("?")
    server.answers = {
        NOW: (200, "NONE"),
        PREEMPTED: (200, "FALSE"),
        UPCOMING: (301, ""),
        f"{name}/?{query}": (200, json.dumps(SNAKE)),
    }
    (seen,) = look(server, "gce")["observations"]
    assert "kind=UNSCHEDULED-maintenance" in seen["evidence"]
