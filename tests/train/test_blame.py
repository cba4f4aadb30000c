from __future__ import annotations

import signal

import pytest

from fleetwell.train.blame import cause_of, exit_code_of, is_consequence, root_of
from fleetwell.train.protocol import Failure


def died(rank: int, code: int = 1, line: str = "") -> Failure:
    return Failure(0, rank, 1, code, cause_of(code), line)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: [gloo/transport/tcp/pair.cc:545] Read error [10.0.0.1]:17290: Connection reset by peer",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        "what():  [enforce fail at pair.cc] gloo::EnforceNotMet",
    ],
)
def test_last_words_that_blame_a_peer_are_a_consequence(line: str) -> None:
    assert is_consequence(died(0, 1, line))


def test_a_killed_worker_is_no_consequence_whatever_it_said_before() -> None:
    assert not is_consequence(died(0, -signal.SIGKILL, "Connection closed by peer, retrying"))


def test_when_all_blame_their_peers_the_first_is_the_root() -> None:
    first, second = died(3, 1, "Connection closed by peer"), died(1, 1, "Connection reset by peer")
    assert root_of([first, second]) == first
    assert root_of([]) is None


def test_causes_and_exit_codes_read_as_the_kernel_meant_them() -> None:
    assert cause_of(3) == "exited with code 3"
    assert cause_of(-9) == "was killed by SIGKILL"
    assert cause_of(-63) == "was killed by signal 63"
    assert [exit_code_of(died(0, 3)), exit_code_of(died(0, -9)), exit_code_of(None)] == [3, 1, 1]
