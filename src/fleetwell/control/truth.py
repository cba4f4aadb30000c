"""Whether an instruction is true already, as far as the picture shows: what is true costs no request. Pure."""

from __future__ import annotations

from fleetwell.api.node_operation import OperationPhase
from fleetwell.api.policy import QuarantineBy
from fleetwell.control.node_view import CORDON_MARK, TAINT_MARK, our_marks
from fleetwell.control.picture import Picture
from fleetwell.policy.instructions import CancelOperation, Instruction, Operate, Quarantine, Restore
from fleetwell.policy.view import QUARANTINE_TAINT, RESERVED_MARKS, UNPROVEN_TAINT


def holds(wanted: Instruction, picture: Picture) -> bool | None:
    """Say whether it is true; None where the picture cannot tell and the effect itself has to look."""
    match wanted:
        case Quarantine():
            return _quarantined(wanted, picture)
        case Restore():
            return _restored(wanted, picture)
        case Operate():
            return _asked(wanted, picture)
        case CancelOperation():
            return _cancelled(wanted, picture)
    return None


def _quarantined(wanted: Quarantine, picture: Picture) -> bool:
    node = picture.nodes.get(wanted.node)
    if node is None or node.metadata.uid != wanted.uid:
        return True
    if picture.marked_for(wanted.node) != wanted.incident:
        return False
    ours = our_marks(node.metadata.annotations)
    tainted = any(taint.key == QUARANTINE_TAINT for taint in node.spec.taints)
    if wanted.by is QuarantineBy.TAINT:
        marked = tainted and TAINT_MARK in ours and CORDON_MARK not in ours
    else:
        marked = node.spec.unschedulable and not tainted
    present = [mark in node.metadata.annotations for mark in RESERVED_MARKS]
    reserved = all(present) if wanted.reserve else not any(mark in ours for mark in RESERVED_MARKS)
    return marked and reserved


def _restored(wanted: Restore, picture: Picture) -> bool:
    node = picture.nodes.get(wanted.node)
    if node is None or node.metadata.uid != wanted.uid:
        return True
    marked_for = picture.marked_for(wanted.node)
    if marked_for and marked_for != wanted.incident:
        return True
    return not marked_for and not any(taint.key in {QUARANTINE_TAINT, UNPROVEN_TAINT} for taint in node.spec.taints)


def _asked(wanted: Operate, picture: Picture) -> bool:
    found = picture.book.operations(wanted.incident).get(wanted.name)
    if found is None or found.spec.operation_id != wanted.spec.operation_id:
        return False
    health = picture.healths.get(wanted.spec.node_name)
    return found.status.phase.ended or (health is not None and health.spec.operation == wanted.name)


def _cancelled(wanted: CancelOperation, picture: Picture) -> bool:
    found = picture.book.operation_named(wanted.name)
    if found is None:
        return True
    return found.spec.cancel or found.status.phase.ended or found.status.phase is OperationPhase.RUNNING
