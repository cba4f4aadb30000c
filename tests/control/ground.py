"""A small fleet in memory, a stepped clock, and the controller over it: what the tests of this folder stand on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from control.memory_api import MemoryApi, Obj
from fleetwell.api.incident import IncidentStatus
from fleetwell.api.resources import INCIDENTS, NODE_HEALTHS, NODE_OPERATIONS, POLICIES
from fleetwell.control.effects.reach import Reach
from fleetwell.control.freshness import Freshness
from fleetwell.control.housekeeping import Housekeeping
from fleetwell.control.loop import Loop
from fleetwell.control.picture import Picture
from fleetwell.control.settings import Clock, Settings, TemplateKind
from fleetwell.control.trim import trim_node
from fleetwell.kube.objects import ObjectReference
from fleetwell.kube.resource import LEASES, NODES

START = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
JANITOR = TemplateKind("janitor.example", "v1", "MachineReplacement", "machinereplacements")
CUSTOM = "/apis/fleetwell.io/v1alpha1"
LEASE_FOLDER = "/apis/coordination.k8s.io/v1/namespaces/fleetwell/leases"


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def health_path(name: str) -> str:
    return f"{CUSTOM}/nodehealths/{name}"


def pod_path(name: str) -> str:
    return f"/api/v1/namespaces/work/pods/{name}"


class Time:
    """A clock that stands until it is stepped."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.set_by = 0.0
        """Seconds by which somebody has set the wall clock, forward or back."""

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.passed + self.set_by)

    def monotonic(self) -> float:
        return self.passed


@dataclass
class Events:
    """Takes Events and keeps them."""

    seen: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, about: ObjectReference, reason: str, message: str, *, warning: bool = False) -> None:
        del warning
        self.seen.append((about.name, reason, message))

    def reasons(self, name: str) -> list[str]:
        return [reason for about, reason, _ in self.seen if about == name]


@dataclass
class Fleet:
    """The objects of a small fleet."""

    time: Time = field(default_factory=Time)
    events: Events = field(default_factory=Events)

    def __post_init__(self) -> None:
        self.api = MemoryApi(self.time.now)

    def reach(self, *, epoch: int = 1, settings: Settings | None = None, picture: Picture | None = None) -> Reach:
        return Reach(
            client=self.api,
            events=self.events,
            clock=Clock(self.time.now, self.time.monotonic),
            settings=settings or Settings(template_kinds=(JANITOR,)),
            epoch=epoch,
            health_version=picture.health_version if picture else lambda _: "",
        )

    def node(self, name: str, *, uid: str = "", boot: str = "boot-1", taints: list[Obj] | None = None) -> Obj:
        conditions = [{"type": "Ready", "status": "True"}, {"type": "fleetwell.io/GPUHealthy", "status": "True"}]
        obj: Obj = {
            "metadata": {"uid": uid or f"{name}-uid", "labels": {"fleetwell.io/pool": "train"}, "annotations": {}},
            "spec": {"providerID": f"lab://{name}", "taints": taints or []},
            "status": {
                "conditions": conditions,
                "allocatable": {"nvidia.com/gpu": "8"},
                "nodeInfo": {"bootID": boot},
            },
        }
        return self.api.put(node_path(name), obj)

    def healthy(self, name: str, *, boot: str = "boot-1", findings: list[Obj] | None = None) -> Obj:
        uid = self.api.objects[node_path(name)]["metadata"]["uid"]
        status = {
            "nodeUID": uid,
            "bootID": boot,
            "settled": not findings,
            "verdict": "BAD" if findings else "OK",
            "findings": findings or [],
        }
        before = self.api.objects.get(health_path(name), {})
        return self.api.put(health_path(name), {"metadata": {}, "spec": before.get("spec", {}), "status": status})

    def beat(self, name: str) -> None:
        spec = {"holderIdentity": name, "renewTime": self.time.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        self.api.put(f"{LEASE_FOLDER}/{name}", {"metadata": {}, "spec": spec})

    def working(self, *names: str) -> None:
        """Make nodes that are well and whose agents are heard."""
        for name in names:
            self.node(name)
            self.healthy(name)
            self.beat(name)

    def beat_all(self) -> None:
        for path in list(self.api.objects):
            if path.startswith("/api/v1/nodes/"):
                self.beat(path.rsplit("/", 1)[1])

    def bad(self, name: str, fault: str = "GpuFallenOffBus", recovery: str = "reboot", boot: str = "boot-1") -> None:
        self.healthy(name, boot=boot, findings=[finding(fault, recovery, boot, self.time.now())])

    def pod(self, name: str, node: str, *, owner: str = "", kind: str = "Job", **more: Any) -> Obj:
        references = (
            [{"apiVersion": "v1", "kind": kind, "name": owner, "uid": owner, "controller": True}] if owner else []
        )
        meta = {"ownerReferences": references, "annotations": more.pop("annotations", {})}
        meta |= more.pop("metadata", {})
        spec = {"nodeName": node, "containers": [], "terminationGracePeriodSeconds": 30} | more
        return self.api.put(pod_path(name), {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})

    def policy(self, **spec: Any) -> None:
        chosen: Obj = {
            "selector": {"matchLabels": {"fleetwell.io/pool": "train"}},
            "mode": "Enforce",
            "rules": [{"name": "all", "faults": ["*"], "ladder": [{"remedy": "reboot"}, {"remedy": "replace"}]}],
            "budget": {"maxUnavailablePercent": 50},
            "release": {"quiet": "2m", "settleDeadline": "15m"},
            "replacement": {
                "provider": "template",
                "template": {"apiVersion": "janitor.example/v1", "kind": "MachineReplacement"},
            },
        }
        path = f"{CUSTOM}/remediationpolicies/gpu"
        self.api.put(path, {"metadata": {"generation": 1}, "spec": chosen | spec})

    # What is there

    def taints(self, name: str) -> list[str]:
        return [taint["key"] for taint in self.api.objects[node_path(name)]["spec"].get("taints") or []]

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.api.objects[node_path(name)]["metadata"].get("annotations", {})
        return found

    def all(self, plural: str) -> list[Obj]:
        return [obj for path, obj in self.api.objects.items() if path.rsplit("/", 2)[1] == plural]

    def incident(self) -> Obj:
        (only,) = self.all("incidents")
        return only

    def phase(self) -> str:
        return str(self.incident().get("status", {}).get("phase"))

    def operations(self, kind: str) -> list[Obj]:
        return [it for it in self.all("nodeoperations") if it["spec"]["kind"] == kind]


def finding(fault: str, recovery: str, boot: str, at: dt.datetime) -> Obj:
    stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "fault": fault,
        "component": "gpu/GPU-1",
        "verdict": "BAD",
        "recovery": recovery,
        "source": "event",
        "probe": "kernel_log",
        "clears": "boot",
        "firstSeen": stamp,
        "lastSeen": stamp,
        "bootID": boot,
        "evidence": ["Xid 79"],
    }


class Controller:
    """One controller over a fleet. Its informers are the memory API's watchers."""

    def __init__(self, fleet: Fleet, *, epoch: int = 1, settings: Settings | None = None) -> None:
        self.fleet = fleet
        chosen = settings or Settings(template_kinds=(JANITOR,))
        self.picture = Picture(Freshness(chosen.agent_stale_after, fleet.time.monotonic))
        self.reach = fleet.reach(epoch=epoch, settings=chosen, picture=self.picture)
        self.loop = Loop(self.reach, self.picture)
        self.chores = Housekeeping(self.reach, self.picture)
        for path, obj in list(fleet.api.objects.items()):
            self._see("ADDED", path.rsplit("/", 2)[1], obj)
        fleet.api.watchers.append(self._see)

    def die(self) -> None:
        """End as a killed process does: nothing is tidied up."""
        self.fleet.api.watchers.remove(self._see)

    async def settle(self, passes: int = 12) -> None:
        """Let the loop run until it has nothing more to do at this moment."""
        for _ in range(passes):
            await self.loop.one_pass()
            await self.loop.dispatcher.idle()
            due = self.loop.dispatcher.next_due()
            if not self.picture.dirty and (due is None or due > self.fleet.time.monotonic()):
                return

    async def step(self, seconds: float) -> None:
        """Let time pass, then settle."""
        self.fleet.time.passed += seconds
        await self.settle()

    async def run(self, seconds: float, each: Callable[[], object] = lambda: None, by: float = 2.0) -> None:
        """Let time pass in small steps; ``each`` plays the rest of the cluster."""
        until = self.fleet.time.passed + seconds
        while self.fleet.time.passed < until:
            each()
            await self.step(by)

    def status(self, name: str) -> IncidentStatus:
        status = self.picture.book.incidents[name].status
        assert status is not None
        return status

    def _see(self, kind: str, plural: str, obj: Obj) -> None:
        raw = msgspec.json.encode(obj)
        gone, name = kind == "DELETED", obj["metadata"]["name"]
        picture = self.picture
        match plural:
            case "nodes":
                picture.node_gone(name) if gone else picture.node_seen(trim_node(NODES.decode(raw)))
            case "nodehealths":
                picture.health_gone(name) if gone else picture.health_seen(NODE_HEALTHS.decode(raw))
            case "incidents":
                picture.incident_gone(name) if gone else picture.incident_seen(INCIDENTS.decode(raw))
            case "nodeoperations":
                operation = NODE_OPERATIONS.decode(raw)
                picture.book.operation_gone(operation) if gone else picture.book.operation_seen(operation)
            case "remediationpolicies":
                picture.policy_gone(name) if gone else picture.policy_seen(POLICIES.decode(raw))
            case "leases" if not gone:
                picture.lease_seen(LEASES.decode(raw))
