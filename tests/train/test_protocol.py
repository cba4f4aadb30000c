from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetwell.train.protocol import (
    MAX_LINE,
    Concluded,
    Failure,
    Hello,
    History,
    ProtocolError,
    Reason,
    WorkerFailed,
    decode_downward,
    decode_upward,
    encode,
)


def test_messages_come_back_as_they_were_sent() -> None:
    hello = Hello(1, 2, 8, "job", "name", 3, History(3, 1, 20, 10))
    assert decode_upward(encode(hello)) == hello
    root = Failure(1, 9, 4711, -9, "was killed by SIGKILL", 'quote " and\nbreak')
    concluded = Concluded(3, Reason.FAILURE, "why", 1, 2, 3, root=root, finish=1)
    assert decode_downward(encode(concluded)) == concluded
    assert encode(concluded).count(b"\n") == 1


@given(st.binary(max_size=300))
def test_noise_is_an_error_of_one_kind(noise: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_upward(noise)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"Hello","node":-1,"nnodes":2,"nproc":1,"run_id":"a","launcher":"b"}',
        b'{"type":"Hello","node":0,"nnodes":2,"nproc":0,"run_id":"a","launcher":"b"}',
        b'{"type":"Ready","address":"a","port":70000}',
        b'{"type":"Welcome","coordinator":"x"}',
        b'{"type":"Draining","grace":-5,"can_save":true}',
    ],
)
def test_values_out_of_bounds_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_upward(line)


def test_the_longest_failure_fits_a_line() -> None:
    failed = WorkerFailed(1, Failure(1, 1, 1, 1, "c" * 2048, "\x00" * 2048))
    assert len(encode(failed)) < MAX_LINE
