"""An API server for one node's objects, in memory: resourceVersions, conflicts, and answers that are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fleetwell.api.node_health import NodeHealthStatus
from fleetwell.api.resources import NODE_HEALTHS, NODE_OPERATIONS, NodeHealth, NodeOperation
from fleetwell.kube.client import PatchKind
from fleetwell.kube.errors import Conflict, NotFound, Status, Unreachable
from fleetwell.kube.objects import Condition, Node, NodeStatus, ObjectMeta
from fleetwell.kube.resource import NODES


class FakeApi:
    """What operations and publisher ask of a client."""

    def __init__(self, node: Node | None = None) -> None:
        self.node = node or Node(metadata=ObjectMeta(name="node-1", uid="uid-1"))
        self.health: NodeHealth | None = None
        self.operations: dict[str, NodeOperation] = {}
        self.writes: list[tuple[str, Any]] = []
        self.away = False
        self.lose_answers = 0
        self.before_write: Callable[[], None] = lambda: None

    async def get(self, resource: Any, name: str) -> Any:
        self._reach("GET")
        if resource is NODE_OPERATIONS and name in self.operations:
            return self.operations[name]
        raise NotFound(f"GET {name}", Status(code=404))

    async def replace(self, resource: Any, obj: Any, *, subresource: str) -> Any:
        assert resource is NODE_OPERATIONS
        assert subresource == "status"
        self.before_write()
        self._reach("PUT")
        name = obj.metadata.name
        if name not in self.operations:
            raise NotFound(f"PUT {name}", Status(code=404))
        if obj.metadata.resource_version != self.operations[name].metadata.resource_version:
            raise Conflict(f"PUT {name}", Status(code=409))
        self.put(msgspec.structs.replace(self.operations[name], status=obj.status))
        self._lose("PUT")
        return self.operations[name]

    async def create(self, resource: Any, obj: Any) -> Any:
        self._reach("POST")
        assert resource is NODE_HEALTHS
        self.health = obj
        self.writes.append(("create health", obj))
        return obj

    async def patch(
        self,
        resource: Any,
        name: str,
        body: Any,
        *,
        kind: PatchKind = PatchKind.STRATEGIC,
        subresource: str | None = None,
    ) -> Any:
        self._reach("PATCH")
        assert subresource == "status"
        if resource is NODES:
            assert kind is PatchKind.STRATEGIC
            self._merge(body["status"]["conditions"])
            self.writes.append(("conditions", body["status"]["conditions"]))
            return self.node
        if self.health is None:
            raise NotFound(f"PATCH {name}", Status(code=404))
        assert kind is PatchKind.JSON
        status = msgspec.convert(body[0]["value"], NodeHealthStatus)
        self.health = msgspec.structs.replace(self.health, status=status)
        self.writes.append(("health", status))
        return self.health

    def put(self, operation: NodeOperation) -> None:
        """Store an operation under a new resourceVersion."""
        name = operation.metadata.name
        before = self.operations.get(name)
        version = str(int(before.metadata.resource_version) + 1) if before is not None else "1"
        metadata = msgspec.structs.replace(operation.metadata, resource_version=version)
        self.operations[name] = msgspec.structs.replace(operation, metadata=metadata)

    def conditions(self) -> dict[str, Condition]:
        return {one.type: one for one in self.node.status.conditions}

    def _merge(self, changes: list[dict[str, str]]) -> None:
        merged = self.conditions() | {change["type"]: msgspec.convert(change, Condition) for change in changes}
        self.node = msgspec.structs.replace(self.node, status=NodeStatus(conditions=list(merged.values())))

    def _reach(self, what: str) -> None:
        if self.away:
            raise Unreachable(what, "connection refused", sent=False)

    def _lose(self, what: str) -> None:
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unreachable(what, "connection reset", sent=True)
