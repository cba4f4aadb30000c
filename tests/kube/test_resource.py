"""Where kinds live."""

from __future__ import annotations

import pytest

from fleetwell.kube.objects import Node, NodeSpec, Taint
from fleetwell.kube.resource import LEASES, NODES, PODS, Raw, Resource


def test_paths_follow_group_scope_and_subresource() -> None:
    assert NODES.path(name="n1", subresource="status") == "/api/v1/nodes/n1/status"
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("x") == "/api/v1/namespaces/x/pods"
    assert LEASES.path("x", "l") == "/apis/coordination.k8s.io/v1/namespaces/x/leases/l"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_cannot_change_the_path(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name"):
        NODES.path(name=name)
    assert NODES.path(name="a/../b?c") == "/api/v1/nodes/a%2F..%2Fb%3Fc"


def test_scope_is_checked() -> None:
    with pytest.raises(ValueError, match="cluster-scoped"):
        NODES.path("x")
    with pytest.raises(ValueError, match="needs a namespace"):
        PODS.path(name="p")


@pytest.mark.parametrize(
    ("group", "custom"), [("", False), ("apps", False), ("coordination.k8s.io", False), ("jobset.x-k8s.io", True)]
)
def test_custom_kinds_are_told_by_their_group(group: str, custom: bool) -> None:
    kind: Resource[Raw] = Resource(group, "v1", "things", "Thing", False, dict)
    assert kind.custom is custom


def test_encoding_uses_the_apis_names_and_leaves_defaults_out() -> None:
    node = Node(spec=NodeSpec(provider_id="aws:///i-1", taints=[Taint(key="k", effect="NoSchedule")]))
    assert NODES.decode(NODES.encode(node)) == node
    assert b'"providerID":"aws:///i-1"' in NODES.encode(node)
    assert b"unschedulable" not in NODES.encode(node)
