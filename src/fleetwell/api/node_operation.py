"""NodeOperation: one thing that an agent is asked to do, at most once, on one boot of one node."""

from __future__ import annotations

import enum

import msgspec

from fleetwell.api.fields import Time, wire
from fleetwell.api.policy import ProofLevel


class OperationKind(enum.StrEnum):
    """What an agent can do. ResetGpu and Reboot happen at most once; Prove and CollectLogs may be repeated."""

    RESET_GPU = "ResetGpu"
    REBOOT = "Reboot"
    PROVE = "Prove"
    COLLECT_LOGS = "CollectLogs"


class OperationPhase(enum.StrEnum):
    """Where an operation stands."""

    PENDING = "Pending"
    ACCEPTED = "Accepted"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNCERTAIN = "Uncertain"
    """It was begun and left no result: it may have happened, so it counts as an attempt."""
    REFUSED = "Refused"
    """It was not begun: another boot, too late, or no disk to record it on."""
    CANCELLED = "Cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self not in {OperationPhase.PENDING, OperationPhase.ACCEPTED, OperationPhase.RUNNING}


class NodeOperationSpec(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """Spec of a NodeOperation, written by the controller."""

    kind: OperationKind
    node_name: str
    node_uid: str
    incident: str
    """Name of the Incident that asks for it."""
    operation_id: str
    """Made from the incident's UID and the attempt: done twice, it is the same operation."""
    expected_boot_id: str
    """It is refused on any other boot."""
    deadline: Time
    """It is not begun after this, and has failed when it is still running then."""
    component: str = ""
    """The GPU of a ResetGpu."""
    level: ProofLevel = ProofLevel.QUICK
    """How hard a Prove tests."""
    cancel: bool = False


class ProofResult(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """One check of a proof."""

    check: str
    verdict: str
    detail: str = ""


class NodeOperationStatus(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """Status of a NodeOperation, written by the node's agent."""

    phase: OperationPhase = OperationPhase.PENDING
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    boot_id: str = ""
    """The boot that reports it."""
    results: tuple[ProofResult, ...] = ()
