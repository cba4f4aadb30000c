"""Ends the pods that use GPUs of a node, so that their owners make them again.

Which pod uses which GPU is known to the kubelet alone, so all pods of the node that ask for GPUs are ended, by eviction
like any other. Those that began after the attempt are its result and are left alone.
"""

from __future__ import annotations

from fleetwell.control.effects.evictable import Disposition, disposition, title
from fleetwell.control.effects.reach import SETTLED, Outcome, Reach, about_node, live_node, not_yet, why_not_ours
from fleetwell.control.node_view import GPU_RESOURCES
from fleetwell.control.wire import parse_time
from fleetwell.kube.errors import Conflict, NotFound, ServerError, TooManyRequests
from fleetwell.kube.objects import Pod
from fleetwell.kube.resource import PODS
from fleetwell.policy.instructions import RestartPods


async def restart(reach: Reach, wanted: RestartPods) -> Outcome:
    """Ask for the eviction of what uses GPUs there and began before the attempt."""
    if await live_node(reach, wanted.node, wanted.uid) is None:
        return SETTLED
    if why := await why_not_ours(reach, wanted.incident, ""):
        return not_yet(f"{why}; no pod is restarted")
    listing = await reach.client.list(PODS, field_selector=f"spec.nodeName={wanted.node}")
    now, left = reach.clock.now(), ""
    for pod in listing.items:
        what = disposition(pod, honor_marks=False, now=now)
        if what is Disposition.STAYS or not _uses_gpus(pod) or _began_since(pod, wanted):
            continue
        left = f"{title(pod)} is {what.value}"
        if what is Disposition.EVICT:
            left = await _evicted(reach, wanted, pod)
    return SETTLED if not left else not_yet(left)


async def _evicted(reach: Reach, wanted: RestartPods, pod: Pod) -> str:
    """Ask for one pod to go; gives what keeps it, or that it is going."""
    name = title(pod)
    try:
        await reach.client.evict(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
    except (NotFound, Conflict):
        return ""
    except (TooManyRequests, ServerError) as error:
        return f"{name} cannot be evicted now: {error.message}"
    message = f"Restarting {name}, which uses {wanted.component}, for Incident {wanted.incident}"
    reach.events.record(about_node(wanted.node, wanted.uid), "RestartingWorkload", message)
    return f"{name} is going"


def _uses_gpus(pod: Pod) -> bool:
    return any(
        resource in GPU_RESOURCES or resource.startswith("nvidia.com/mig-")
        for container in pod.spec.containers
        for resource in (*container.resources.limits, *container.resources.requests)
    )


def _began_since(pod: Pod, wanted: RestartPods) -> bool:
    began = parse_time(pod.metadata.creation_timestamp)
    return wanted.started_before is not None and began is not None and began >= wanted.started_before
