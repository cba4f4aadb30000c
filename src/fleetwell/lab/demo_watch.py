"""Watches a lab and says what happens, as it happens; remembers the times that the closing table needs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from rich.console import Console
from rich.markup import escape

from fleetwell.api.incident import IncidentKind, Phase
from fleetwell.api.resources import INCIDENTS, Incident
from fleetwell.kube.client import Client
from fleetwell.kube.informer import Change, ChangeKind, Informer
from fleetwell.kube.objects import Node, Pod
from fleetwell.kube.resource import NODES, PODS

T = TypeVar("T")
_PREFIX = "fleetwell.io/"
_UUID = re.compile(r"(GPU-[0-9a-f]{8})-[0-9a-f-]{27}")
"""Eight digits of a GPU's UUID tell it from the others on a screen."""
_NOT_YET = "NotYetChecked"
"""Between a boot and the first look: nothing to tell."""
_BAD = {"False": "red", "Unknown": "yellow", "True": "green"}


class Narrator:
    """Prints lines with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.time()

    def since(self, at: float) -> float:
        """Turn a time into seconds since the start."""
        return at - self._began

    def say(self, who: str, text: str, style: str = "") -> None:
        """Say one thing about somebody."""
        seconds = f"{self.since(time.time()):6.1f}s"
        text = _UUID.sub(r"\1…", text)
        body = f"[{style}]{escape(text)}[/]" if style else escape(text)
        self.console.print(f"[dim]{seconds}[/]  [bold]{who:<10}[/] {body}", highlight=False, soft_wrap=True)

    def title(self, text: str) -> None:
        """Begin a part of the story."""
        self.console.print()
        self.console.print(f"[bold cyan]── {escape(text)}[/]", highlight=False)


@dataclass
class Run:
    """What the training job's record says."""

    events: list[dict[str, Any]] = field(default_factory=list)

    def named(self, name: str) -> list[dict[str, Any]]:
        """Give the events of one kind."""
        return [event for event in self.events if event["event"] == name]

    @property
    def lost(self) -> list[int]:
        """Steps lost at each resumption, in order."""
        return [int(event["steps_lost"]) for event in self.named("generation_resumed")]


class Watch:
    """Follows nodes, incidents, the job's pods and its record."""

    def __init__(self, client: Client, narrator: Narrator, run_dir: Path) -> None:
        self._narrator = narrator
        self._record = run_dir / "events.jsonl"
        self._read = 0
        self.run = Run()
        self.nodes = Informer(client, NODES)
        self.incidents = Informer(client, INCIDENTS)
        self.pods = Informer(client, PODS, namespace="default")
        self.seen: dict[tuple[str, str], float] = {}
        """When a condition of a node was first seen not True, by node and condition."""
        self.holds: set[tuple[str, str]] = set()
        """Incidents that were held, and why."""
        self._said: dict[str, str] = {}
        self._stack = contextlib.AsyncExitStack()
        self.nodes.on_change(self._node)
        self.incidents.on_change(self._incident)
        self.pods.on_change(self._pod)

    async def __aenter__(self) -> Self:
        """Begin to follow."""
        for informer in (self.nodes, self.incidents, self.pods):
            await self._stack.enter_async_context(informer)
            await informer.synced.wait()
        self._tail = asyncio.create_task(self._follow_record())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop following."""
        self._tail.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._tail
        await self._stack.aclose()

    def repair(self, node: str) -> Incident | None:
        """Give the latest repair incident of a node."""
        return self._latest(node, IncidentKind.REPAIR)

    def admission(self, node: str) -> Incident | None:
        """Give the admission incident of a node."""
        return self._latest(node, IncidentKind.ADMISSION)

    def phase(self, node: str) -> Phase | None:
        """Give the phase of a node's latest repair incident."""
        incident = self.repair(node)
        return incident.status.phase if incident is not None and incident.status is not None else None

    def _latest(self, node: str, kind: IncidentKind) -> Incident | None:
        mine = [i for i in self.incidents.items() if i.spec.node_name == node and i.spec.kind is kind]
        return max(mine, key=lambda incident: incident.metadata.creation_timestamp or "", default=None)

    def pod_on(self, index: int) -> Pod | None:
        """Give the running pod of the job with this completion index."""
        for pod in self.pods.items():
            mine = pod.metadata.labels.get("batch.kubernetes.io/job-completion-index") == str(index)
            if mine and pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
                return pod
        return None

    def node_of(self, app: str) -> str:
        """Name the node on which a running pod with this label ``app`` is; empty when there is none."""
        for pod in self.pods.items():
            alive = pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
            if alive and pod.metadata.labels.get("app") == app:
                return pod.spec.node_name
        return ""

    async def until(self, what: str, look: Callable[[], T], seconds: float) -> T:
        """Wait for a true answer and give it.

        :raises TimeoutError: says what was waited for.
        """
        deadline = time.monotonic() + seconds
        while not (answer := look()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s: {what}")
            await asyncio.sleep(0.1)
        return answer

    def _node(self, change: Change[Node]) -> None:
        name, now = change.object.metadata.name, time.time()
        if change.kind is ChangeKind.DELETED:
            self._narrator.say(name, "its Node object is gone")
            return
        self._conditions(change, now)
        if change.old is None and change.kind is ChangeKind.ADDED and self.nodes.synced.is_set():
            self._narrator.say(name, "joins the cluster, unproven")
        boot = change.object.status.node_info.boot_id
        if change.old is not None and change.old.status.node_info.boot_id not in {"", boot}:
            self._narrator.say(name, f"is up again, boot id {boot[:8]}")

    def _conditions(self, change: Change[Node], now: float) -> None:
        """Say in one line what changed together, for the same reason."""
        name = change.object.metadata.name
        before = {} if change.old is None else {c.type: c for c in change.old.status.conditions}
        together: dict[tuple[str, str, str], list[str]] = {}
        for condition in change.object.status.conditions:
            if not condition.type.startswith(_PREFIX):
                continue
            old = before.get(condition.type)
            if condition.status != "True" and condition.reason != _NOT_YET:
                self.seen.setdefault((name, condition.type), now)
            if old is not None and old.status != condition.status and condition.reason != _NOT_YET:
                message = "" if condition.status == "True" else f": {condition.message}"
                key = (condition.status, condition.reason, message)
                together.setdefault(key, []).append(condition.type.removeprefix(_PREFIX))
        for (status, reason, message), types in together.items():
            what = f"{', '.join(types)} {'is' if len(types) == 1 else 'are'} {status} ({reason}){message}"
            self._narrator.say(name, what, _BAD[status])

    def _incident(self, change: Change[Incident]) -> None:
        status = change.object.status
        if change.kind is ChangeKind.DELETED or status is None:
            return
        if status.hold is not None:
            self.holds.add((change.object.metadata.name, status.hold.reason))
        last = self._said.get(change.object.metadata.name, "")
        texts = [f"{said.at.isoformat()} {said.text}" for said in status.decisions]
        fresh = texts[texts.index(last) + 1 :] if last in texts else texts
        for text in fresh:
            # What the condition said already is not said again.
            decision = text.partition(" ")[2].partition(": NVRM")[0]
            self._narrator.say(change.object.spec.node_name, decision, "blue")
        if texts:
            self._said[change.object.metadata.name] = texts[-1]

    def _pod(self, change: Change[Pod]) -> None:
        pod, old = change.object, change.old
        index = pod.metadata.labels.get("batch.kubernetes.io/job-completion-index")
        who = f"job pod {index}" if index is not None else f"{pod.metadata.labels.get('app')} pod"
        if change.kind is ChangeKind.DELETED:
            return
        if pod.status.phase == "Running" and (old is None or old.status.phase != "Running"):
            self._narrator.say(pod.spec.node_name, f"{who} runs here")
        elif pod.metadata.deletion_timestamp and old is not None and not old.metadata.deletion_timestamp:
            self._narrator.say(pod.spec.node_name, f"{who} is asked to leave (SIGTERM)")
        elif pod.status.phase == "Failed" and (old is None or old.status.phase != "Failed"):
            self._narrator.say(pod.spec.node_name, f"{who} has left")

    async def _follow_record(self) -> None:
        while True:
            with contextlib.suppress(FileNotFoundError), self._record.open("rb") as record:
                record.seek(self._read)
                for line in record:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    self._told(msgspec.json.decode(line))
            await asyncio.sleep(0.1)

    def _told(self, event: dict[str, Any]) -> None:
        self.run.events.append(event)
        match event:
            case {"event": "generation_started", "generation": number, "world": world}:
                self._narrator.say("training", f"generation {number} starts: {world} ranks", "magenta")
            case {"event": "generation_resumed", "generation": number, "resumed_step": step, "steps_lost": lost}:
                self._narrator.say(
                    "training", f"generation {number} steps from step {step}; steps lost: {lost}", "magenta"
                )
            case {"event": "generation_ended", "reason": reason, "last_step": last, "saved_step": saved}:
                root = event.get("root") or {}
                why = f"; root: rank {root['rank']}: {root['line']}" if "rank" in root else ""
                self._narrator.say("training", f"ends at step {last}, saved up to {saved}: {reason}{why}", "magenta")
