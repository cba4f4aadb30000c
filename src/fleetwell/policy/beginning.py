"""Whether an attempt that stands written may still be begun, and whether it was.

Between an intent and its effect lie requests that fail, agents that are away and controllers that end. A node may
recover meanwhile, and a repair that comes after the recovery takes out a healthy machine (NVSentinel #121, #1280). So
an attempt is begun only while something is said against the node on the boot that it was decided for.
"""

from __future__ import annotations

from fleetwell.api.incident import Attempt, IncidentStatus
from fleetwell.api.node_operation import OperationPhase
from fleetwell.api.policy import Remedy
from fleetwell.policy.evidence import silent, standing
from fleetwell.policy.view import NOT_ORDERED, Episode, NodeView, OperationView, Policy, Surroundings


def attempt_name(episode: str, number: int) -> str:
    """Name the object of an attempt: done twice, it is the same object."""
    return f"{episode}-a{number}"


def asked(episode: Episode, around: Surroundings, attempt: Attempt) -> OperationView | None:
    """Give the operation of an attempt; one that an earlier incident of the same name has left is none."""
    return around.operation(attempt_name(episode.name, attempt.number), f"{episode.uid}-a{attempt.number}")


def begun(episode: Episode, around: Surroundings, attempt: Attempt) -> bool:
    """Whether the attempt is known to be under way or over, so that it can no longer be taken back."""
    if attempt.remedy is Remedy.REPLACE:
        order = around.replacement
        named = order is not None and order.name == attempt_name(episode.name, attempt.number)
        return named and order is not None and order.state != NOT_ORDERED
    view = asked(episode, around, attempt)
    return view is not None and (view.status.phase.ended or view.status.phase is OperationPhase.RUNNING)


def never_begun(episode: Episode, around: Surroundings, attempt: Attempt) -> bool:
    """Whether the attempt is known to have no object in the cluster."""
    if attempt.remedy is Remedy.REPLACE:
        order = around.replacement
        named = order is not None and order.name == attempt_name(episode.name, attempt.number)
        return named and order is not None and order.state == NOT_ORDERED
    return asked(episode, around, attempt) is None


def grounded(status: IncidentStatus, attempt: Attempt, node: NodeView, policy: Policy) -> bool:
    """Whether what the attempt was decided for is still said, of the boot that it was decided for."""
    stands = standing(status.findings, node, policy.spec)
    said = stands.now if attempt.remedy is Remedy.RESTART_WORKLOAD else stands.live
    return bool(said) and node.boot_id == attempt.expected_boot_id


def may_begin(status: IncidentStatus, attempt: Attempt, node: NodeView, policy: Policy) -> bool:
    """Whether the attempt may be begun now.

    What an agent has to do waits until it is heard again: whoever comes back after a silence would otherwise find an
    order to reboot that was given because of the silence.
    """
    by_agent = attempt.remedy in {Remedy.REBOOT, Remedy.RESET_GPU}
    return grounded(status, attempt, node, policy) and not (by_agent and silent(node))
