from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from fleetwell.api.manifests import manifests
from fleetwell.api.resources import ALL, NodeHealth, RemediationPolicy
from fleetwell.api.schema import PRESENTATIONS, crds, unknown_fields
from fleetwell.kube.meta import ObjectMeta

Json = dict[str, Any]


def schema_of(kind: str) -> Json:
    (crd,) = [crd for crd in crds() if crd["spec"]["names"]["kind"] == kind]
    schema: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: Json, path: str = "") -> list[tuple[str, Json]]:
    found = [(path, schema)]
    for name, part in schema.get("properties", {}).items():
        found += walk(part, f"{path}.{name}")
    if "items" in schema:
        found += walk(schema["items"], f"{path}[]")
    return found


@pytest.mark.parametrize("kind", [resource.kind for resource in ALL])
def test_a_schema_is_structural(kind: str) -> None:
    for path, part in walk(schema_of(kind)):
        assert "type" in part, path
        assert not {"$ref", "anyOf", "oneOf", "title", "const", "examples"} & part.keys(), path
        assert not ("properties" in part and "additionalProperties" in part), path


@pytest.mark.parametrize("kind", [resource.kind for resource in ALL])
def test_every_printer_column_points_at_a_field_that_exists(kind: str) -> None:
    paths = {path for path, _ in walk(schema_of(kind))}
    for column in PRESENTATIONS[kind].columns:
        if column.path.startswith(".metadata"):
            continue
        assert re.sub(r"\[\d+\]", "[]", column.path) in paths, column.path


def test_fields_are_spelled_as_kubernetes_spells_them() -> None:
    spec = schema_of("NodeOperation")["properties"]["spec"]["properties"]
    assert {"nodeUID", "operationID", "expectedBootID"} <= spec.keys()


def test_the_text_below_a_field_is_its_description() -> None:
    tolerate = schema_of("RemediationPolicy")["properties"]["spec"]["properties"]["rules"]["items"]["properties"][
        "tolerate"
    ]
    assert "added up" in tolerate["description"]
    assert "``" not in str(crds())


def test_an_optional_part_may_be_null() -> None:
    hold = schema_of("Incident")["properties"]["spec"]["properties"]["hold"]
    assert hold["nullable"] is True
    assert hold["required"] == ["by", "at"]


def test_what_the_server_would_store_by_default_is_what_the_code_assumes() -> None:
    rule = {"name": "all", "faults": ["*"]}
    policy = msgspec.convert({"metadata": {"name": "p"}, "spec": {"selector": {}, "rules": [rule]}}, RemediationPolicy)
    spec = schema_of("RemediationPolicy")["properties"]["spec"]["properties"]
    for name, part in spec.items():
        if "default" in part and part["type"] != "object":
            assert msgspec.to_builtins(policy.spec)[name] == part["default"], name


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"tolerate": "5"}, "$.spec.rules[0].tolerate"),
        ({"ladder": [{"remedy": "kick"}]}, "$.spec.rules[0].ladder[0].remedy"),
    ],
)
def test_a_mistake_in_a_policy_is_named_with_its_place(change: Json, place: str) -> None:
    rule = {"name": "all", "faults": ["*"], **change}
    with pytest.raises(msgspec.ValidationError, match=re.escape(place)):
        msgspec.convert({"metadata": {"name": "p"}, "spec": {"selector": {}, "rules": [rule]}}, RemediationPolicy)


def test_manifests_hold_each_object_once_and_crds_come_first() -> None:
    documents = manifests()
    names = [
        (document["kind"], document["metadata"]["name"], document["metadata"].get("namespace"))
        for document in documents
    ]
    assert len(names) == len(set(names))
    kinds = [document["kind"] for document in documents]
    last_crd = max(i for i, kind in enumerate(kinds) if kind == "CustomResourceDefinition")
    assert set(kinds[: last_crd + 1]) == {"CustomResourceDefinition"}


def test_a_field_that_does_not_exist_is_named_with_its_place_and_its_neighbour() -> None:
    spec = {"selector": {}, "rules": [{"name": "a", "faults": ["*"]}, {"name": "b", "faults": ["*"], "tolerat": "5m"}]}
    assert unknown_fields({"kind": "RemediationPolicy", "spec": spec}) == [
        "$.spec.rules[1].tolerat is not a field; did you mean tolerate?"
    ]


def test_labels_of_a_selector_may_have_any_name() -> None:
    spec = {"selector": {"matchLabels": {"a/b": "c"}}, "rules": [{"name": "a", "faults": ["*"]}]}
    assert unknown_fields({"kind": "RemediationPolicy", "spec": spec}) == []


def test_a_policy_of_a_newer_version_can_still_be_read() -> None:
    body = {"selector": {}, "rules": [{"name": "a", "faults": ["*"], "storms": {"over": 3}}], "domains": ["rack"]}
    policy = msgspec.convert({"metadata": {"name": "p"}, "spec": body}, RemediationPolicy)
    assert policy.spec.rules[0].name == "a"


def test_a_policy_and_a_node_health_say_in_the_same_words_what_a_node_must_have() -> None:
    of_policy, of_health = (
        schema_of(kind)["properties"]["spec"]["properties"]["expected"] for kind in ("RemediationPolicy", "NodeHealth")
    )
    assert of_policy["properties"] == of_health["properties"]
    assert set(of_policy["properties"]) == {"gpus", "efa", "infiniband"}
    for name, field in of_policy["properties"].items():
        assert (field["type"], field["minimum"], field["nullable"]) == ("integer", 0, True), name
        assert field["description"]
    assert of_policy["default"] == {}
    assert "default" not in of_health


def test_a_node_health_that_an_agent_makes_says_nothing_in_its_spec() -> None:
    made = NodeHealth(metadata=ObjectMeta(name="node-1"))
    assert msgspec.to_builtins(made)["spec"] == {}


def test_fewer_than_none_cannot_be_expected() -> None:
    spec = {"selector": {}, "rules": [{"name": "all", "faults": ["*"]}], "expected": {"gpus": -1}}
    with pytest.raises(msgspec.ValidationError, match=re.escape("$.spec.expected.gpus")):
        msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, RemediationPolicy)
