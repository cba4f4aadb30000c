"""Node conditions out of triage's state: one per thing that a person asks about, True = good, never before a check."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from fleetwell.health.catalogue import Fault, FaultClass, fault_or_unknown
from fleetwell.health.evidence import evidence
from fleetwell.health.vocabulary import ConditionStatus, ConditionType, Finding, Recovery, Verdict

HEALTHY: Final = "Healthy"
NOT_YET_CHECKED: Final = "NotYetChecked"
FINDINGS_OVERFLOW: Final = "FindingsOverflow"
_MESSAGE_LIMIT: Final = 512


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One node condition, as Kubernetes has them."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str
    last_transition: float | None = None
    """Seconds since the epoch; None until :func:`transition` has set it."""


def transition(old: Condition | None, new: Condition, now: float) -> Condition:
    """Give ``new`` its last transition: ``now`` when the status differs from ``old``'s, else ``old``'s own."""
    kept = old.last_transition if old is not None and old.status is new.status else None
    return msgspec.structs.replace(new, last_transition=now if kept is None else kept)


def moves_conditions(finding: Finding, entry: Fault) -> bool:
    """Say whether a finding may move conditions: never what applications did, nor what asks for nothing.

    Only that the agent itself is blind is said though nothing is asked for.
    """
    if not entry.touches_node:
        return False
    asks = finding.recovery is not Recovery.NONE or entry.fault_class is FaultClass.MONITORING
    return finding.verdict is Verdict.BAD or (finding.verdict is Verdict.UNKNOWN and asks)


def conditions_of(
    found: Collection[Finding],
    *,
    judges: Mapping[str, frozenset[ConditionType]],
    unchecked: frozenset[ConditionType],
    adopted: Mapping[ConditionType, Condition],
    overflow: int,
) -> tuple[Condition, ...]:
    """Work the conditions out.

    ``judges`` says which conditions each probe judges: a probe that does not answer leaves them unknown.
    ``unchecked`` are the conditions that no complete look of this boot stands behind; for those an earlier agent's
    condition of the same boot (``adopted``) holds, so that a restart moves nothing.
    """
    moving = [
        (finding, entry) for finding in found if moves_conditions(finding, entry := fault_or_unknown(finding.fault))
    ]
    return tuple(
        _condition(
            kind,
            [finding for finding, entry in moving if kind in _moved(finding, entry, judges)],
            unchecked=kind in unchecked,
            adopted=adopted.get(kind),
            overflow=overflow if kind is ConditionType.MONITORING else 0,
        )
        for kind in ConditionType
    )


def _moved(finding: Finding, entry: Fault, judges: Mapping[str, frozenset[ConditionType]]) -> frozenset[ConditionType]:
    own = frozenset({entry.condition})
    return own | judges.get(finding.probe, frozenset()) if entry.fault_class is FaultClass.MONITORING else own


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Sort findings, the worst verdict and the strongest recovery first, in a stable order."""
    return sorted(
        found,
        key=lambda one: (-one.verdict.severity, -one.recovery.rank, one.fault, one.component, one.source, one.probe),
    )


def _condition(
    kind: ConditionType, found: list[Finding], *, unchecked: bool, adopted: Condition | None, overflow: int
) -> Condition:
    if found:
        worst, *others = worst_first(found)
        status = ConditionStatus.FALSE if worst.verdict is Verdict.BAD else ConditionStatus.UNKNOWN
        return Condition(type=kind, status=status, reason=worst.fault, message=_message(worst, len(others)))
    if overflow:
        message = f"{overflow} findings had no room and are not listed"
        return Condition(type=kind, status=ConditionStatus.UNKNOWN, reason=FINDINGS_OVERFLOW, message=message)
    if unchecked:
        return adopted or Condition(
            type=kind,
            status=ConditionStatus.UNKNOWN,
            reason=NOT_YET_CHECKED,
            message="no complete check since the machine started",
        )
    return Condition(type=kind, status=ConditionStatus.TRUE, reason=HEALTHY, message="every check passed")


def _message(worst: Finding, others: int) -> str:
    line = f": {worst.evidence[0]}" if worst.evidence else ""
    more = f" (and {others} more)" if others else ""
    where = f"{worst.component}{more}"
    return evidence(f"{where}{line}", _MESSAGE_LIMIT)
