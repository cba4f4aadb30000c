import pytest

from fleetwell.diagnose.diagnosis import Diagnosis, Found, conclude, headline, text
from fleetwell.health.vocabulary import FaultName, Recovery, Verdict


def found(verdict: Verdict, recovery: Recovery, fault: str = "GpuLost", component: str = "gpu/a") -> Found:
    return Found(
        fault=FaultName(fault),
        component=component,
        verdict=verdict,
        recovery=recovery,
        count=1,
        evidence=(f"{fault} was seen",),
        why="",
    )


def concluded(*findings: Found, judged: bool = True) -> Diagnosis:
    return conclude(findings, (), judged=judged)


def test_the_worst_verdict_counts_and_only_its_findings_ask() -> None:
    unclear = found(Verdict.UNKNOWN, Recovery.SUPPORT, "GpuUnknownXid")
    whole = concluded(unclear, found(Verdict.BAD, Recovery.RESET_GPU), found(Verdict.CONFIG, Recovery.NONE, "X"))
    assert (whole.verdict, whole.recovery) == (Verdict.BAD, Recovery.RESET_GPU)


def test_nothing_judged_is_never_ok() -> None:
    assert concluded(judged=False).verdict is Verdict.UNKNOWN
    assert concluded().verdict is Verdict.OK


@pytest.mark.parametrize(
    ("verdict", "recovery", "code", "strict"),
    [
        (Verdict.OK, Recovery.NONE, 0, 0),
        (Verdict.CONFIG, Recovery.RESTART_WORKLOAD, 0, 1),
        (Verdict.BAD, Recovery.RESTART_WORKLOAD, 0, 1),
        (Verdict.BAD, Recovery.RESET_GPU, 1, 1),
        (Verdict.BAD, Recovery.SUPPORT, 1, 1),
        (Verdict.UNKNOWN, Recovery.NONE, 2, 2),
    ],
)
def test_the_exit_code_is_the_answer(verdict: Verdict, recovery: Recovery, code: int, strict: int) -> None:
    whole = concluded(found(verdict, recovery))
    assert whole.exit_code(strict=False) == code
    assert whole.exit_code(strict=True) == strict


def test_one_fault_seen_in_two_inputs_is_one_finding() -> None:
    whole = concluded(found(Verdict.BAD, Recovery.REBOOT), found(Verdict.UNKNOWN, Recovery.NONE))
    (only,) = whole.findings
    assert (only.verdict, only.recovery, only.count) == (Verdict.BAD, Recovery.REBOOT, 2)


def test_the_headline_is_one_line_with_the_worst_first() -> None:
    whole = concluded(found(Verdict.CONFIG, Recovery.NONE, "X"), found(Verdict.BAD, Recovery.REBOOT))
    assert headline(whole) == "BAD: GpuLost on gpu/a, asks for reboot (and 1 more)"
    assert text(whole).splitlines()[0] == headline(whole)
    assert "  | GpuLost was seen" in text(whole)
