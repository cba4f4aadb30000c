from __future__ import annotations

import pytest

from fleetwell.kube.objects import ObjectMeta, Pod, PodSpec
from fleetwell.lab.pod_environment import expand, field

POD = Pod(
    metadata=ObjectMeta(name="train-0", namespace="ml", uid="u1", labels={"batch.kubernetes.io/index": "3"}),
    spec=PodSpec(node_name="gpu-1", service_account_name="trainer"),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(HOST)/dev", "/root/dev"),
        ("$$(HOST)", "$(HOST)"),
        ("$(MISSING)", "$(MISSING)"),
        ("a $HOST b", "a $HOST b"),
        ("$(HOST)$(HOST)", "/root/root"),
    ],
)
def test_references_are_replaced_as_kubernetes_replaces_them(text: str, value: str) -> None:
    assert expand(text, {"HOST": "/root"}) == value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "train-0"),
        ("metadata.labels['batch.kubernetes.io/index']", "3"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "gpu-1"),
        ("status.podIP", "127.1.0.1"),
    ],
)
def test_downward_fields_are_read(path: str, value: str) -> None:
    assert field(POD, path, "127.1.0.1") == value


def test_a_field_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"spec\.volumes.*metadata\.name"):
        field(POD, "spec.volumes", "")
