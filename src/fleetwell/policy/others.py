"""What others do to a node: who stands at it with a drain, a restart or a deletion of their own."""

from __future__ import annotations

from typing import Final

from fleetwell.policy.view import NodeView

_TAINTS: Final = (
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
    "weave.works/kured-node-reboot",
    "medik8s.io/",
)
"""Taints by which others say that they drain, restart or delete the node; a trailing slash names a whole domain."""


def others_at_work(node: NodeView) -> str:
    """Say who else drains, restarts or deletes the node now; empty when nobody does."""
    if node.deleting:
        return "the Node object is being deleted"
    for taint in node.taints_of_others:
        if any(_names(pattern, taint) for pattern in _TAINTS):
            return f"another controller is at work on it (taint {taint})"
    return ""


def _names(pattern: str, taint: str) -> bool:
    return pattern in taint if pattern.endswith("/") else taint == pattern
