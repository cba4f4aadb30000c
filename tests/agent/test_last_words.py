"""What a job's last word says, and what it leaves for its exit code to say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetwell.agent.last_words import read
from fleetwell.agent.termination_messages import MESSAGE_LIMIT
from fleetwell.train.protocol import Concluded, Failure, Reason
from fleetwell.train.termination import PATH, leave_word

XID = b"RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
SEGFAULT = Failure(node=1, rank=3, pid=7, code=-11, cause="was killed by SIGSEGV")


@pytest.mark.parametrize(
    ("concluded", "told"),
    [
        (Concluded(1, Reason.FAILURE, "", root=SEGFAULT), (3, -11, "was killed by SIGSEGV")),
        (
            Concluded(1, Reason.LAUNCHER_LOST, "", root=Failure(0, 0, 1, 1, "exited with 1", line="ValueError: \x1b")),
            (0, 1, "ValueError: \x1b"),
        ),
        (Concluded(1, Reason.DRAIN, "node 1 drained", root=SEGFAULT), None),
        (Concluded(1, Reason.DONE, "all workers finished"), None),
        (Concluded(1, Reason.NEVER_FORMED, "NCCL never formed"), None),
    ],
)
def test_the_launchers_word_is_understood(
    concluded: Concluded, told: tuple[int, int, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATH, str(tmp_path / "word"))
    leave_word(concluded)
    report = read((tmp_path / "word").read_bytes()).report
    assert (report and (report.rank, report.exit_code, report.evidence)) == told


@pytest.mark.parametrize(
    "said",
    [
        XID,
        b"\x00\xff\xfe NCCL WARN \xf0",
        b"all was well\nfatal: GPU has fallen off the bus\n",
        b"Segmentation fault (core dumped)",
        json.dumps({"error": "CUBLAS_STATUS_EXECUTION_FAILED"}).encode(),
    ],
)
def test_words_that_suggest_the_hardware_are_heard(said: bytes) -> None:
    assert read(said).report is not None


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"done",
        b"torch.OutOfMemoryError: CUDA out of memory. CUDA error",
        b"CUDA error: device-side assert triggered",
        b"KeyError: 'defaults'",
        bytes(range(256)) * 16,
        b"[" * MESSAGE_LIMIT,
        b'{"of nobody":' + b"[" * (MESSAGE_LIMIT - 13),
        b'{"reason": "failure", "generation": 1, "code": 99999999999999999999}',
        b'{"reason": 7}',
    ],
)
def test_other_words_are_not(said: bytes) -> None:
    assert read(said).report is None


@pytest.mark.parametrize(
    ("said", "explains"),
    [
        (XID, True),
        (b"torch.OutOfMemoryError: CUDA out of memory", True),
        (b"CUDA error: device-side assert triggered", True),
        (b'{"reason": "drain", "generation": 1}', True),
        (b'{"reason": "failure", "generation": 1, "code": -6}', True),
        (b"epoch 3 begins", False),
        (b"", False),
    ],
)
def test_some_words_explain_an_end_and_some_leave_it_to_the_exit_code(said: bytes, explains: bool) -> None:
    assert read(said).explains is explains
