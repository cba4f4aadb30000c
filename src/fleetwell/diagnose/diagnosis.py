"""The answer: what is wrong with which component, why, what to do, and what could not be told."""

from __future__ import annotations

from typing import Final

import msgspec

from fleetwell.health.catalogue import fault_or_unknown
from fleetwell.health.vocabulary import HOST, FaultName, Finding, Recovery, Verdict, strongest

EXIT_OK: Final = 0
EXIT_BAD: Final = 1
EXIT_UNKNOWN: Final = 2
EXIT_USAGE: Final = 3
"""Exit codes of the commands that answer; a node-problem-detector plugin's, which takes 2 and more for Unknown."""

_MAX_EVIDENCE: Final = 8
_NONSENSE: Final = FaultName("ProbeNonsense")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One fault on one component. The field names are the JSON's, and stable."""

    fault: FaultName
    component: str
    verdict: Verdict
    recovery: Recovery
    count: int
    evidence: tuple[str, ...]
    why: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What one machine has. The field names are the JSON's, and stable."""

    verdict: Verdict
    recovery: Recovery
    """The strongest of the findings that count: those whose verdict is the whole's."""
    findings: tuple[Found, ...]
    blind: tuple[str, ...]
    """What could not be told from what was given."""

    def exit_code(self, *, strict: bool) -> int:
        """Give the exit code: 0 also for what asks for no more than another start of the work, unless ``strict``."""
        if self.verdict is Verdict.OK:
            return EXIT_OK
        if self.verdict is Verdict.UNKNOWN:
            return EXIT_UNKNOWN
        mild = self.verdict is Verdict.CONFIG or self.recovery.rank <= Recovery.RESTART_WORKLOAD.rank
        return EXIT_OK if mild and not strict else EXIT_BAD


def found(finding: Finding) -> Found:
    """Put one of triage's findings into the answer's words."""
    entry = fault_or_unknown(finding.fault)
    why = f"{entry.means} {entry.action}"
    if finding.suspected:
        why = f"It came back in this place for different processes: it may be the hardware, so prove this GPU. {why}"
    # What cannot be understood is no ground for a reset, a reboot or a replacement.
    recovery = Recovery.NONE if finding.fault == _NONSENSE else finding.recovery
    return Found(
        fault=finding.fault,
        component=finding.component,
        verdict=finding.verdict,
        recovery=recovery,
        count=finding.count,
        evidence=finding.evidence,
        why=why,
    )


def no_answer(name: str, said: str, then: str) -> Found:
    """Give the finding for an input that tells nothing, or not all that it should: never a reason to touch a node."""
    return Found(
        fault=FaultName(name),
        component=HOST,
        verdict=Verdict.UNKNOWN,
        recovery=Recovery.NONE,
        count=1,
        evidence=(said,),
        why=f"There is nothing that can be judged, or not all that there should be. {then}",
    )


def conclude(findings: tuple[Found, ...], blind: tuple[str, ...], *, judged: bool) -> Diagnosis:
    """Draw the whole from its parts.

    :param judged: whether anything was given that says how the machine is; without that nothing is OK.
    """
    findings = _merged(findings)
    least = Verdict.OK if judged else Verdict.UNKNOWN
    verdict = max((least, *(one.verdict for one in findings)), key=lambda one: one.severity)
    count = [one.recovery for one in findings if one.verdict is verdict]
    ordered = sorted(findings, key=lambda one: (-one.verdict.severity, -one.recovery.rank))
    return Diagnosis(verdict=verdict, recovery=strongest(count), findings=tuple(ordered), blind=blind)


def _merged(findings: tuple[Found, ...]) -> tuple[Found, ...]:
    """Put together what several inputs say of one fault on one component."""
    merged: dict[tuple[str, str], Found] = {}
    for one in findings:
        other = merged.get((one.fault, one.component))
        if other is not None:
            worse = max(other, one, key=lambda found: (found.verdict.severity, found.recovery.rank))
            lines = tuple(dict.fromkeys((*other.evidence, *one.evidence)))[:_MAX_EVIDENCE]
            one = msgspec.structs.replace(worse, count=other.count + one.count, evidence=lines)  # noqa: PLW2901
        merged[one.fault, one.component] = one
    return tuple(merged.values())


def headline(diagnosis: Diagnosis) -> str:
    """Give the answer in one line: what a node-problem-detector shows."""
    worst = diagnosis.findings[0] if diagnosis.findings else None
    if worst is None:
        return "OK: nothing wrong was found" if diagnosis.verdict is Verdict.OK else "UNKNOWN: cannot tell"
    rest = len(diagnosis.findings) - 1
    more = f" (and {rest} more)" if rest else ""
    if diagnosis.verdict is Verdict.OK:
        return f"OK: nothing to do; noted {worst.fault} on {worst.component}{more}"
    asks = "" if diagnosis.recovery is Recovery.NONE else f", asks for {diagnosis.recovery}"
    return f"{diagnosis.verdict}: {worst.fault} on {worst.component}{asks}{more}"


def text(diagnosis: Diagnosis) -> str:
    """Give the answer for a person: the headline, each finding with its evidence, and what could not be told."""
    lines = [headline(diagnosis)]
    for one in diagnosis.findings:
        times = f", {one.count} times" if one.count > 1 else ""
        lines += ["", f"{one.verdict}  {one.fault} on {one.component}: asks for {one.recovery}{times}"]
        lines.append(f"  {one.why}")
        lines += [f"  | {line}" for line in one.evidence]
    if diagnosis.blind:
        lines += ["", "Could not tell:", *(f"  - {line}" for line in diagnosis.blind)]
    return "\n".join(lines)
