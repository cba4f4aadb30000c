"""CustomResourceDefinitions, made from the types: what the code decodes is what the API server admits.

Kubernetes wants *structural* schemas: no references, no unions, every enum typed. Descriptions are the docstrings of
the types and their fields, so that ``kubectl explain incident.status.hold`` reads like the code. Defaults are stored
for policies only, where a person should see what applies; statuses leave defaults out, which keeps objects small.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
from dataclasses import dataclass
from typing import Any

import msgspec

from fleetwell.api import GROUP, VERSION, resources
from fleetwell.api.fields import wire

Json = dict[str, Any]

_KEPT = (
    "type", "description", "enum", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
    "required",
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A printer column of ``kubectl get``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def manifest(self) -> Json:
        """Give the column as the CRD spells it."""
        column: Json = {"name": self.name, "jsonPath": self.path, "type": self.type}
        return {**column, "priority": 1} if self.wide else column


@dataclass(frozen=True)
class Presentation:
    """What a kind has besides its fields: short names, columns, and rules in CEL on its spec."""

    short: str
    columns: tuple[Column, ...]
    rules: tuple[tuple[str, str], ...] = ()


_IMMUTABLE_INCIDENT = ("kind", "nodeName", "nodeUID", "policy")
_IMMUTABLE_OPERATION = (
    "kind", "nodeName", "nodeUID", "incident", "operationID", "expectedBootID", "deadline",
)  # fmt: skip
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

PRESENTATIONS = {
    "RemediationPolicy": Presentation(
        "rpol",
        (
            Column("Mode", ".spec.mode"),
            Column("Nodes", ".status.nodes", "integer"),
            Column("Incidents", ".status.openIncidents", "integer"),
            Column("Problem", ".status.problem"),
            _AGE,
        ),
        (
            (
                "!has(self.replacement) || self.replacement.provider != 'template' || has(self.replacement.template)",
                "provider template needs replacement.template: say which apiVersion and kind to create",
            ),
        ),
    ),
    "NodeHealth": Presentation(
        "nh",
        (
            Column("Verdict", ".status.verdict"),
            Column("Settled", ".status.settled", "boolean"),
            Column("GPUs", ".status.seen.gpus", "integer"),
            Column("Summary", ".status.summary"),
            Column("Boot", ".status.bootID", wide=True),
            Column("Agent", ".status.agentVersion", wide=True),
            _AGE,
        ),
    ),
    "Incident": Presentation(
        "inc",
        (
            Column("Node", ".spec.nodeName"),
            Column("Phase", ".status.phase"),
            Column("Fault", ".status.findings[0].fault"),
            Column("Hold", ".status.hold.reason"),
            Column("Next", ".status.next.step"),
            Column("Summary", ".status.summary"),
            Column("Kind", ".spec.kind", wide=True),
            Column("Policy", ".spec.policy", wide=True),
            _AGE,
        ),
        tuple(
            (f"self.{name} == oldSelf.{name}", f"{name} is fixed when the incident is opened")
            for name in _IMMUTABLE_INCIDENT
        ),
    ),
    "NodeOperation": Presentation(
        "nop",
        (
            Column("Node", ".spec.nodeName"),
            Column("Kind", ".spec.kind"),
            Column("Phase", ".status.phase"),
            Column("Message", ".status.message"),
            _AGE,
        ),
        (
            *(
                (f"self.{name} == oldSelf.{name}", f"{name} is fixed when the operation is made")
                for name in _IMMUTABLE_OPERATION
            ),
            (
                "!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",
                "a cancelled operation stays cancelled: make a new one",
            ),
        ),
    ),
    "TrainingRun": Presentation(
        "trun",
        (
            Column("Phase", ".status.phase"),
            Column("Generation", ".status.generation", "integer"),
            Column("Step", ".status.step", "integer"),
            Column("Checkpoint", ".status.checkpointStep", "integer"),
            Column("Lost", ".status.stepsLost", "integer"),
            _AGE,
        ),
    ),
}


def crds() -> list[Json]:
    """Make the CustomResourceDefinitions of all kinds."""
    return [_crd(resource, PRESENTATIONS[resource.kind]) for resource in resources.ALL]


def unknown_fields(manifest: Json) -> list[str]:
    """Name the fields of an object of ours that its kind does not have, with their places and the nearest real name.

    :raises ValueError: the object is of none of our kinds.
    """
    for crd in crds():
        if crd["spec"]["names"]["kind"] == manifest.get("kind"):
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            return _unknown(manifest.get("spec"), schema, "$.spec")
    raise ValueError(f"{manifest.get('kind')!r} is none of {', '.join(PRESENTATIONS)}")


def _unknown(value: Any, schema: Json, place: str) -> list[str]:
    if isinstance(value, list):
        return [it for number, part in enumerate(value) for it in _unknown(part, schema["items"], f"{place}[{number}]")]
    known = schema.get("properties")
    if not isinstance(value, dict) or known is None:
        return []
    found = []
    for name, part in value.items():
        if name in known:
            found += _unknown(part, known[name], f"{place}.{name}")
        else:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            found.append(f"{place}.{name} is not a field{hint}")
    return found


def _crd(resource: Any, presentation: Presentation) -> Json:
    hints = {field.name: field.type for field in msgspec.structs.fields(resource.type)}
    status = next(kind for kind in _members(hints["status"]) if kind is not type(None))
    spec = _Structural(hints["spec"], defaults=resource.kind == "RemediationPolicy").schema()
    if presentation.rules:
        spec["x-kubernetes-validations"] = [{"rule": rule, "message": text} for rule, text in presentation.rules]
    properties = {"spec": spec, "status": _Structural(status, defaults=False).schema()}
    description = inspect.getdoc(resource.type) or ""
    required = [name for name in ("spec",) if spec.get("required")]
    schema: Json = {"type": "object", "description": description, "properties": properties}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "shortNames": [presentation.short],
                "categories": ["fleetwell"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {**schema, "required": required} if required else schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [column.manifest() for column in presentation.columns],
                }
            ],
        },
    }


def _members(union: Any) -> tuple[Any, ...]:
    return getattr(union, "__args__", None) or (union,)


class _Structural:
    """Turns the JSON schema that msgspec makes of a type into a structural one."""

    def __init__(self, of: Any, *, defaults: bool) -> None:
        (self._top,), self._components = msgspec.json.schema_components([of], ref_template="{name}")
        self._defaults = defaults
        self._docs = _field_docs(inspect.getmodule(of).__name__)  # type: ignore[union-attr]  # a class has a module

    def schema(self) -> Json:
        return self._convert(self._top)

    def _convert(self, node: Json) -> Json:
        if "$ref" in node:
            merged = {**self._components[node["$ref"]], **{k: v for k, v in node.items() if k != "$ref"}}
            return self._convert({"struct": node["$ref"], **merged})
        if "anyOf" in node:
            (kind,) = [option for option in node["anyOf"] if option.get("type") != "null"]
            rest = {k: v for k, v in node.items() if k not in {"anyOf", "default"}}
            return {**self._convert({**kind, **rest}), "nullable": True}
        out = {key: node[key] for key in _KEPT if node.get(key) not in (None, [], "")}
        if "description" in out:
            out["description"] = _plain(out["description"])
        if "enum" in out:
            out["type"] = "string"
        if "default" in node and self._defaults and node["default"] is not None:
            out["default"] = _without_nulls(msgspec.to_builtins(node["default"]))
        if "properties" in node:
            docs = self._docs.get(str(node.get("struct") or node.get("title")), {})
            out["properties"] = {
                name: self._described(self._convert(field), docs.get(name))
                for name, field in node["properties"].items()
            }
        elif isinstance(node.get("additionalProperties"), dict):
            out["additionalProperties"] = self._convert(node["additionalProperties"])
        if "items" in node:
            out["items"] = self._convert(node["items"])
        return out

    @staticmethod
    def _described(schema: Json, text: str | None) -> Json:
        return {**schema, "description": text} if text else schema


def _plain(docstring: str) -> str:
    return " ".join(docstring.replace("``", "`").split())


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return value


def _field_docs(module: str) -> dict[str, dict[str, str]]:
    """Collect the strings that stand below the fields of the structs of a module and of the modules it builds on."""
    docs: dict[str, dict[str, str]] = {}
    for name in (module, "fleetwell.api.node_health", "fleetwell.api.policy"):
        for node in ast.parse(inspect.getsource(importlib.import_module(name))).body:
            if isinstance(node, ast.ClassDef):
                docs.setdefault(node.name, _docs_of(node))
    return docs


def _docs_of(struct: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, text in zip(struct.body, struct.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[wire(field.target.id)] = _plain(text.value.value)
    return found
