"""Which exit codes make the agent look, and which do not."""

from __future__ import annotations

import signal

import pytest

from fleetwell.agent.exit_codes import EXIT_CODES, report_of
from fleetwell.agent.job_reports import JobReport, Trouble

FATAL = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)


@pytest.mark.parametrize("number", FATAL)
def test_a_signal_that_hardware_can_cause_is_a_hint_however_it_is_told(number: signal.Signals) -> None:
    for code in (128 + number, 256 - number):
        report = report_of(code, "")
        assert report is not None
        assert (report.kind, report.exit_code) == (Trouble.WORKER_DIED, -number)
        assert number.name in report.evidence


@pytest.mark.parametrize(
    "code", [0, 1, 2, 124, 125, 126, 127, 128, 129, 130, 131, 133, 137, 141, 143, 241, 247, 254, 255]
)
def test_what_somebody_wanted_or_a_program_says_of_itself_is_none(code: int) -> None:
    assert code in EXIT_CODES
    assert report_of(code, "") is None


@pytest.mark.parametrize("code", [3, 64, 159, 200, 256, -6, 1 << 40])
def test_codes_that_nobody_knows_say_nothing(code: int) -> None:
    assert report_of(code, "") is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [(15, Trouble.WORKER_DIED), (201, Trouble.WORKER_DIED), (16, Trouble.WRONG_RESULT), (17, Trouble.WRONG_RESULT)],
)
def test_codes_by_which_programs_tell_of_hardware_are_hints(code: int, kind: Trouble) -> None:
    assert report_of(code, "") == JobReport(
        kind, exit_code=code, evidence=f"ended with {code}: {EXIT_CODES[code].means}"
    )


def test_an_end_for_want_of_memory_is_explained_whatever_the_code() -> None:
    assert report_of(134, "OOMKilled") is None
    assert report_of(134, "Error") is not None


def test_the_table_is_in_order_and_says_for_each_code_what_and_why() -> None:
    assert [*EXIT_CODES] == sorted(EXIT_CODES)
    for row in EXIT_CODES.values():
        assert row.means
        assert row.why
        assert not row.signal or row.code in {128 + row.signal, 256 - row.signal}
        assert not row.signal or signal.Signals(row.signal).name in row.means
