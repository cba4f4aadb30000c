"""What a drain has to do with each pod of a node. Pure.

The filters are those of ``kubectl drain``; the marks are those of Karpenter and the cluster autoscaler.
"""

from __future__ import annotations

import datetime as dt
import enum

from fleetwell.control.wire import parse_time
from fleetwell.kube.objects import Pod, Taint, Toleration

MIRROR = "kubernetes.io/config.mirror"
PROTECTIONS = (("karpenter.sh/do-not-disrupt", "true"), ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"))
STUCK_AFTER = dt.timedelta(seconds=10)
"""How far beyond its grace a terminating pod must be: the kubelet's last steps and two clocks lie between."""


class Disposition(enum.Enum):
    """What a drain does about a pod."""

    STAYS = "stays"
    """Mirror, DaemonSet or finished: no drain moves it."""
    TERMINATING = "terminating"
    STUCK = "stuck"
    """Terminating beyond its grace."""
    PROTECTED = "protected"
    """Marked do-not-disrupt or safe-to-evict=false, which is honoured until the deadline."""
    EVICT = "evict"


def disposition(pod: Pod, *, honor_marks: bool, now: dt.datetime) -> Disposition:
    """Say what a drain does about a pod."""
    meta = pod.metadata
    owner = next((reference for reference in meta.owner_references if reference.controller), None)
    if MIRROR in meta.annotations or (owner is not None and owner.kind == "DaemonSet"):
        return Disposition.STAYS
    if meta.deletion_timestamp is not None:
        # The API server writes the end of the grace into it, not its beginning.
        ends = parse_time(meta.deletion_timestamp)
        return Disposition.STUCK if ends is not None and now > ends + STUCK_AFTER else Disposition.TERMINATING
    if pod.status.phase in {"Succeeded", "Failed"}:
        return Disposition.STAYS
    if honor_marks and any(meta.annotations.get(key) == value for key, value in PROTECTIONS):
        return Disposition.PROTECTED
    return Disposition.EVICT


def title(pod: Pod) -> str:
    """Name a pod for people."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def owner_key(pod: Pod) -> str:
    """Name what makes the pod again: its controller, else itself."""
    owner = next((reference for reference in pod.metadata.owner_references if reference.controller), None)
    return f"{owner.kind} {pod.metadata.namespace}/{owner.name}" if owner else f"Pod {title(pod)}"


def tolerates(tolerations: list[Toleration], taint: Taint) -> bool:
    """Whether a pod with these tolerations may be scheduled onto a node with this taint."""
    return any(_matches(toleration, taint) for toleration in tolerations)


def why_it_lands(pod: Pod, taint: Taint) -> str:
    """Say how a pod came onto a node that wears our mark: the toleration, or past the scheduler."""
    found = next((toleration for toleration in pod.spec.tolerations if _matches(toleration, taint)), None)
    if found is None:
        return "it is placed by spec.nodeName, past the scheduler, or by one that does not heed the mark"
    key, operator = found.key or "every taint", found.operator or "Equal"
    return f"its toleration of {key} ({operator}) lets it onto the quarantined node"


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.key == "":
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
