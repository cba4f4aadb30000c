"""An API server in memory behind the real client: versions, preconditions, patches by kind, eviction with budgets.

It replaces only the sending of requests, so what is tested is what would have gone over the wire. Watchers are called
at once, which makes the loop's tests deterministic.
"""

from __future__ import annotations

import copy
import datetime as dt
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from fleetwell.kube.client import Client, PatchKind
from fleetwell.kube.config import ConnectionConfig
from fleetwell.kube.errors import Unreachable, from_response

Obj = dict[str, Any]
Watcher = Callable[[str, str, Obj], None]
WITH_STATUS = {"incidents", "nodehealths", "nodeoperations", "remediationpolicies", "nodes", "machinereplacements"}
CONDITIONS = "conditions"


class MemoryApi(Client):
    """One API server. ``calls`` holds (method, path) of what was sent, in order; reads too."""

    def __init__(self, now: Callable[[], dt.datetime]) -> None:
        super().__init__(ConnectionConfig(server="http://memory", token="t"), user_agent="test")
        self.now = now
        self.objects: dict[str, Obj] = {}
        self.calls: list[tuple[str, str]] = []
        self.watchers: list[Watcher] = []
        self.evictions: defaultdict[str, list[tuple[int, Obj]]] = defaultdict(list)
        """Path of a pod → answers to its evictions, used up one by one; then they succeed."""
        self.failures: list[tuple[str, str, int, str]] = []
        """(method, part of the path, code, reason): the next such request fails so."""
        self.lost: list[tuple[str, str]] = []
        """(method, part of the path): the next such request is carried out, and its answer does not arrive."""
        self.before: list[tuple[str, str, Callable[[], object]]] = []
        """(method, part of the path, what happens right before the next such request is served)."""
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)

    # What tests use

    def put(self, path: str, obj: Obj) -> Obj:
        """Make or change an object as somebody else would."""
        before = self.objects.get(path)
        meta = obj.setdefault("metadata", {})
        meta["name"] = path.rsplit("/", 1)[1]
        if "/namespaces/" in path:
            meta["namespace"] = path.split("/namespaces/")[1].split("/", maxsplit=1)[0]
        meta.setdefault("uid", (before or {}).get("metadata", {}).get("uid") or f"uid-{next(self._uids)}")
        meta.setdefault("creationTimestamp", _stamp(self.now()))
        return self._store(path, obj)

    def edit(self, path: str, change: Callable[[Obj], object]) -> Obj:
        """Change an object in place, as somebody else would."""
        obj = copy.deepcopy(self.objects[path])
        change(obj)
        return self._store(path, obj)

    def remove(self, path: str) -> None:
        obj = self.objects.pop(path)
        self._tell("DELETED", path, obj)

    def sent(self, method: str, part: str = "") -> list[str]:
        return [path for verb, path in self.calls if verb == method and part in path]

    def writes(self) -> list[tuple[str, str]]:
        return [(verb, path) for verb, path in self.calls if verb != "GET"]

    # The server

    async def _send(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None,
    ) -> bytes:
        if method != "GET" and self.fence is not None:
            self.fence(timeout or 1.0)
        for index, (verb, part, happens) in enumerate(self.before):
            if verb == method and part in path:
                del self.before[index]
                happens()
                break
        self.calls.append((method, path))
        for index, (verb, part, code, reason) in enumerate(self.failures):
            if verb == method and part in path:
                del self.failures[index]
                self._fail(what, code, reason)
        decoded = json.loads(body) if body else {}
        answer = self._serve(method, path, what, dict(params or {}), decoded, content_type)
        for index, (verb, part) in enumerate(self.lost):
            if verb == method and part in path:
                del self.lost[index]
                raise Unreachable(what, "no answer", sent=True)
        return json.dumps(answer).encode()

    def _serve(self, method: str, path: str, what: str, params: Obj, body: Obj, content_type: str) -> Obj:
        if method == "POST":
            return self._post(path, what, body)
        target, sub = (path.removesuffix("/status"), "status") if path.endswith("/status") else (path, "")
        if method == "GET" and target not in self.objects and _collection(target):
            return self._list(target, params)
        if target not in self.objects:
            self._fail(what, 404, "NotFound")
        if method == "GET":
            return self.objects[target]
        self._check(target, what, body.get("preconditions", {}) if method == "DELETE" else body.get("metadata", {}))
        if method == "DELETE":
            gone = self.objects[target]
            self.remove(target)
            return gone
        changed = (
            self._replaced(target, body, sub) if method == "PUT" else self._patched(target, body, sub, content_type)
        )
        return self._store(target, changed)

    def _post(self, path: str, what: str, body: Obj) -> Obj:
        if path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"), what, body)
        if path.endswith("/selfsubjectreviews"):
            return {"status": {"userInfo": {"username": "ada"}}}
        return self._create(path, what, body)

    def _check(self, target: str, what: str, wanted: Obj) -> None:
        meta = self.objects[target]["metadata"]
        if any(wanted.get(key) and wanted[key] != meta[key] for key in ("uid", "resourceVersion")):
            self._fail(what, 409, "Conflict")

    def _create(self, path: str, what: str, body: Obj) -> Obj:
        name = body["metadata"]["name"]
        target = f"{path}/{name}"
        if target in self.objects:
            self._fail(what, 409, "AlreadyExists")
        if path.rsplit("/", 1)[1] in WITH_STATUS:
            body.pop("status", None)
        body["metadata"] |= {"uid": f"uid-{next(self._uids)}", "creationTimestamp": _stamp(self.now())}
        return self._store(target, body)

    def _list(self, path: str, params: Obj) -> Obj:
        plural = path.rsplit("/", 1)[1]
        node = params.get("fieldSelector", "").removeprefix("spec.nodeName=")
        items = [
            obj
            for key, obj in self.objects.items()
            if key.rsplit("/", 2)[1] == plural and (not node or obj.get("spec", {}).get("nodeName") == node)
        ]
        return {"metadata": {"resourceVersion": "1"}, "items": items}

    def _replaced(self, target: str, body: Obj, sub: str) -> Obj:
        before = copy.deepcopy(self.objects[target])
        if sub == "status":
            before["status"] = body.get("status", {})
            return before
        if target.rsplit("/", 2)[1] in WITH_STATUS:
            body["status"] = before.get("status", {})
        body["metadata"] = before["metadata"] | body["metadata"]
        return body

    def _patched(self, target: str, body: Obj, sub: str, content_type: str) -> Obj:
        obj = copy.deepcopy(self.objects[target])
        body = copy.deepcopy(body)
        body.get("metadata", {}).pop("resourceVersion", None)
        if sub == "status":
            body.pop("spec", None)
        elif target.rsplit("/", 2)[1] in WITH_STATUS:
            body.pop("status", None)
        if content_type == PatchKind.STRATEGIC.value:
            given = body.get("status", {}).pop(CONDITIONS, [])
            known = {it["type"]: it for it in obj.get("status", {}).get(CONDITIONS, [])}
            for condition in given:
                known[condition["type"]] = known.get(condition["type"], {}) | condition
            obj.setdefault("status", {})[CONDITIONS] = list(known.values())
        merge(obj, body)
        return obj

    def _evict(self, target: str, what: str, body: Obj) -> Obj:
        if target not in self.objects:
            self._fail(what, 404, "NotFound")
        options, pod = body["deleteOptions"], self.objects[target]
        if options["preconditions"]["uid"] != pod["metadata"]["uid"]:
            self._fail(what, 409, "Conflict")
        if self.evictions[target]:
            code, answer = self.evictions[target].pop(0)
            raise from_response(what, code, {}, json.dumps(answer).encode())
        grace = options.get("gracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
        ends = self.now() + dt.timedelta(seconds=grace)
        self.edit(target, lambda it: it["metadata"].update(deletionTimestamp=_stamp(ends)))
        return {"kind": "Status", "status": "Success"}

    def _store(self, path: str, obj: Obj) -> Obj:
        before = self.objects.get(path)
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        if before is not None and before.get("spec") != obj.get("spec"):
            obj["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
        self.objects[path] = obj
        self._tell("MODIFIED" if before else "ADDED", path, obj)
        return obj

    def _tell(self, kind: str, path: str, obj: Obj) -> None:
        for watcher in self.watchers:
            watcher(kind, path.rsplit("/", 2)[1], copy.deepcopy(obj))

    def _fail(self, what: str, code: int, reason: str) -> None:
        body = {"kind": "Status", "code": code, "reason": reason, "message": reason}
        raise from_response(what, code, {}, json.dumps(body).encode())


def merge(into: Obj, patch: Obj) -> None:
    """Apply a JSON merge patch."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif isinstance(value, dict):
            into[key] = {}
            merge(into[key], value)
        else:
            into[key] = value


def refused_by_budget() -> tuple[int, Obj]:
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
    }
    return 429, {
        "code": 429,
        "reason": "TooManyRequests",
        "message": "Cannot evict pod",
        "details": {"causes": [cause]},
    }


def refused_by_priority() -> tuple[int, Obj]:
    return 429, {"code": 429, "reason": "TooManyRequests", "message": "too many requests, please try again later"}


def refused_by_two_budgets() -> tuple[int, Obj]:
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    return 500, {"code": 500, "reason": "InternalError", "message": text}


def _collection(path: str) -> bool:
    last = path.rsplit("/", 1)[1]
    return last in WITH_STATUS | {"pods", "leases", "daemonsets"}


def _stamp(at: dt.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
