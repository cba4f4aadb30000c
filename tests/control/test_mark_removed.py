"""Who is seen to have taken our mark away, as the API server's managedFields really look (Kubernetes 1.37)."""

from __future__ import annotations

from typing import Any

from fleetwell.control.node_view import mark_removed_by
from fleetwell.control.trim import trim_node
from fleetwell.kube.objects import ManagedFieldsEntry, Node, ObjectMeta


def entry(manager: str, second: int, *spec_fields: str, subresource: str = "") -> ManagedFieldsEntry:
    fields: dict[str, Any] = {"f:spec": {name: {} for name in spec_fields}} if spec_fields else {}
    time = f"2026-11-30T00:00:{second:02}Z"
    return ManagedFieldsEntry(manager=manager, time=time, fields_v1=fields, subresource=subresource)


def remover(*entries: ManagedFieldsEntry, marks: str = "taint") -> str:
    meta = ObjectMeta(name="a", annotations={"fleetwell.io/marks": marks}, managed_fields=list(entries))
    return mark_removed_by(trim_node(Node(metadata=meta)))


KUBELET = entry("kubelet", 1, "f:providerID")
OURSELVES = entry("fleetwell-controller", 5)


def test_who_takes_the_last_taint_leaves_no_trace_and_nobody_is_blamed_for_it() -> None:
    assert remover(KUBELET, OURSELVES, entry("kube-controller-manager", 9)) == ""


def test_who_wrote_the_taints_that_are_left_took_ours() -> None:
    assert remover(KUBELET, OURSELVES, entry("karpenter", 9, "f:taints")) == "karpenter"
    assert remover(KUBELET, OURSELVES, entry("kubectl-taint", 9, "f:taints")) == "kubectl-taint"


def test_a_status_write_takes_no_taint() -> None:
    assert remover(OURSELVES, entry("kubelet", 9, "f:taints", subresource="status")) == ""


def test_an_uncordon_is_not_laid_to_who_writes_the_taints_of_a_cordon() -> None:
    follows = entry("kube-controller-manager", 9, "f:taints")
    assert remover(OURSELVES, follows, marks="cordon") == ""
    assert remover(OURSELVES, follows, entry("autoscaler", 8, "f:unschedulable"), marks="cordon") == "autoscaler"
