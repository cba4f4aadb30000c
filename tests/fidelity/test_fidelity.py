from pathlib import Path

import pytest

from fidelity.harness import Case, ask, cases, judge

ALL = tuple(cases())


@pytest.mark.parametrize("case", ALL, ids=[f"{case.topic}: {case.name}" for case in ALL])
def test_a_public_report_gets_the_right_verdict(case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if case.known_wrong:
        request.applymarker(pytest.mark.xfail(reason=case.known_wrong, strict=True))
    outcome = ask(case, tmp_path)
    assert judge(case, outcome) == "right", outcome


def test_every_case_has_a_name_of_its_own() -> None:
    names = [(case.topic, case.name) for case in ALL]
    assert len(set(names)) == len(names)
