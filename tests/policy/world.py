"""A small world in which the policy core runs without a cluster: what the tests of policy/ share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from fleetwell.api.incident import Command, IncidentStatus, Phase
from fleetwell.api.node_health import NodeFinding, NodeHealthStatus
from fleetwell.api.node_operation import NodeOperationStatus, OperationKind, OperationPhase, ProofResult
from fleetwell.health.vocabulary import Recovery
from fleetwell.policy.budget import Fleet, admit
from fleetwell.policy.case import Step
from fleetwell.policy.evidence import PROOF_FAILED, PROOF_UNFINISHED, said_now
from fleetwell.policy.instructions import (
    Answer,
    CancelOperation,
    DrainNode,
    Instruction,
    Operate,
    OrderReplacement,
    Quarantine,
    Request,
    Restore,
)
from fleetwell.policy.ladder import answer, decide
from fleetwell.policy.matching import governing
from fleetwell.policy.opening import opens
from fleetwell.policy.view import (
    NOT_ORDERED,
    Episode,
    NodeView,
    OperationView,
    PodsView,
    Policy,
    ReplacementView,
    Surroundings,
)
from fleetwell.policy.wanted import desired, forgettable
from policy.builders import START, policy

HARM = (OperationKind.REBOOT, OperationKind.RESET_GPU)
BY_A_PROOF = (PROOF_FAILED, PROOF_UNFINISHED)


@dataclass
class World:
    """One policy, some nodes, and the controller's loop over them with a stepped clock and obedient effects."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    policies: list[Policy] = field(default_factory=lambda: [policy()])
    now: dt.datetime = START
    episodes: dict[str, Episode] = field(default_factory=dict)
    operations: dict[str, OperationView] = field(default_factory=dict)
    orders: dict[str, ReplacementView] = field(default_factory=dict)
    problem: str = ""
    machine_attempts: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    effects: list[Instruction] = field(default_factory=list)
    """Every effect that changed something, in order."""
    obey: Callable[[Instruction], bool] = lambda _: True
    """Which instructions the cluster carries out."""

    @classmethod
    def of(cls, *nodes: NodeView, **changes: Any) -> World:
        return cls(nodes={node.name: node for node in nodes}, **changes)

    def change(self, name: str, **changes: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], **changes)

    def says(self, name: str, *findings: NodeFinding, settled: bool | None = None) -> None:
        """Let the node's agent say just these findings, on the node's present boot."""
        here = self.nodes[name]
        health = NodeHealthStatus(
            node_uid=here.uid,
            boot_id=here.boot_id,
            settled=not findings if settled is None else settled,
            findings=findings,
        )
        self.change(name, health=health)

    def boots(self, name: str, boot: str, *findings: NodeFinding) -> None:
        """Let the node come back with another boot id and its agent speak."""
        self.change(name, boot_id=boot, ready=True, agent_fresh=True)
        self.says(name, *findings)

    def around(self, episode: Episode) -> Surroundings:
        here = self.nodes.get(episode.spec.node_name)
        here = here if here is not None and here.uid == episode.spec.node_uid else None
        governs, problem = governing(here, self.policies) if here is not None else (None, "")
        if here is None:
            governs = next((it for it in self.policies if it.name == episode.spec.policy), None)
        pool = [it for it in self.nodes.values() if not it.deleting and not it.unproven]
        back = here is None and any(
            it.uid != episode.uid and it.status.machine == episode.status.machine and not it.status.phase.ended
            for it in self.episodes.values()
        )
        orders = [order for name, order in self.orders.items() if name.startswith(f"{episode.name}-")]
        return Surroundings(
            node=here,
            policy=governs,
            policy_problem=problem or self.problem,
            operations={name: it for name, it in self.operations.items() if name.startswith(f"{episode.name}-")},
            replacement=orders[-1] if orders else None,
            pool_nodes=len(pool) - back,
            machine_attempts=self.machine_attempts,
        )

    def fleet(self) -> Fleet:
        return Fleet.of(self.nodes.values(), self.episodes.values(), self.policies)

    def open_of(self, name: str) -> Episode | None:
        here = self.nodes.get(name)
        for episode in self.episodes.values():
            if here is not None and episode.spec.node_uid == here.uid and not episode.status.phase.ended:
                return episode
        return None

    def write(self, episode: Episode, status: IncidentStatus) -> Episode:
        written = replace(episode, status=status)
        self.episodes[episode.name] = written
        return written

    def turn(self, after: dt.timedelta = dt.timedelta()) -> None:
        """One pass: open, decide, admit, write, then carry out what is wanted."""
        self.now += after
        for here in list(self.nodes.values()):
            if self.open_of(here.name) is None:
                self._open(here)
        steps = {name: self._decide(episode) for name, episode in list(self.episodes.items())}
        self.requests = [step.request for step in steps.values() if step.request is not None]
        self.answers = dict(admit(self.requests, self.fleet(), self.now))
        for request in self.requests:
            episode = self.episodes[request.episode]
            given = self.answers[request.episode]
            self.write(episode, answer(episode, request, given, self.around(episode), self.now))
        for episode in list(self.episodes.values()):
            if episode.status.phase.ended and self.open_of(episode.spec.node_name) is not None:
                continue
            for instruction in desired(episode, self.around(episode)):
                if self.obey(instruction):
                    self._carry_out(instruction)

    def turns(self, count: int, after: dt.timedelta = dt.timedelta(seconds=10)) -> None:
        for _ in range(count):
            self.turn(after)

    def _open(self, here: NodeView) -> None:
        governs, _ = governing(here, self.policies)
        past = [it for it in self.episodes.values() if it.spec.node_uid == here.uid]
        of_machine = [it for it in self.episodes.values() if it.status.machine.provider_id == here.machine.provider_id]
        opening = opens(here, governs, self.now, past, of_machine)
        if opening is not None:
            name = f"inc-{len(self.episodes) + 1}"
            self.episodes[name] = Episode(name=name, uid=f"uid-{name}", spec=opening.spec, status=opening.status)

    def _decide(self, episode: Episode) -> Step:
        step = decide(episode, self.around(episode), self.now)
        self.write(episode, step.status)
        return step

    def _carry_out(self, wanted: Instruction) -> None:
        match wanted:
            case Quarantine():
                if not self.nodes[wanted.node].our_taint:
                    self.effects.append(wanted)
                    self.change(wanted.node, our_taint=True)
            case Restore():
                self.effects.append(wanted)
                self.change(wanted.node, our_taint=False, unproven=False, marks=())
            case DrainNode():
                self.effects.append(wanted)
                pods = self.nodes[wanted.node].pods or PodsView(to_evict=0)
                self.change(wanted.node, pods=replace(pods, counted_at=self.now + dt.timedelta(seconds=1)))
            case Operate():
                if wanted.name not in self.operations:
                    self.effects.append(wanted)
                    self.operations[wanted.name] = OperationView(
                        name=wanted.name, spec=wanted.spec, status=NodeOperationStatus()
                    )
            case OrderReplacement():
                self._order(wanted)
            case CancelOperation():
                self.effects.append(wanted)
                self.operation(wanted.name, OperationPhase.CANCELLED)
            case _:
                self.effects.append(wanted)

    def _order(self, wanted: OrderReplacement) -> None:
        there = self.orders.get(wanted.name)
        if there is not None and there.state != NOT_ORDERED:
            return
        self.effects += [wanted] if wanted.begin else []
        self.orders[wanted.name] = ReplacementView(name=wanted.name, state="Ordered" if wanted.begin else NOT_ORDERED)

    def operation(
        self, name: str, phase: OperationPhase, message: str = "", results: tuple[ProofResult, ...] = ()
    ) -> None:
        """Let the agent write an operation's status."""
        status = NodeOperationStatus(phase=phase, message=message, results=results)
        self.operations[name] = replace(self.operations[name], status=status)

    def done(self, kind: type[Instruction]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def reboots(self) -> list[Operate]:
        return [it for it in self.done(Operate) if it.spec.kind is OperationKind.REBOOT]

    def tell(self, name: str, **commands: Command | None) -> None:
        """Let a person write a command onto an episode."""
        episode = self.episodes[name]
        self.episodes[name] = replace(episode, spec=msgspec.structs.replace(episode.spec, **commands))

    def status(self, name: str = "inc-1") -> IncidentStatus:
        return self.episodes[name].status

    def phase(self, name: str = "inc-1") -> Phase:
        return self.status(name).phase

    def story(self, name: str = "inc-1") -> str:
        return "\n".join(said.text for said in self.status(name).decisions)

    def finished(self, name: str = "inc-1") -> bool:
        return forgettable(self.episodes[name], self.around(self.episodes[name]))


class CheckedWorld(World):
    """A world in which every decision is made twice, the second time from what a new controller would read."""

    def _decide(self, episode: Episode) -> Step:
        around = self.around(episode)
        read_back = msgspec.json.decode(msgspec.json.encode(episode.status), type=IncidentStatus)
        first = decide(episode, around, self.now)
        assert decide(replace(episode, status=read_back), around, self.now) == first
        return super()._decide(episode)

    def _carry_out(self, wanted: Instruction) -> None:
        made = len(self.effects)
        super()._carry_out(wanted)
        if len(self.effects) == made:
            return
        if isinstance(wanted, OrderReplacement) or (isinstance(wanted, Operate) and wanted.spec.kind in HARM):
            self._has_a_ground(wanted)

    def _has_a_ground(self, wanted: Operate | OrderReplacement) -> None:
        """Whatever was decided earlier: at the moment when harm is begun, something must be said of this boot."""
        episode = self.episodes[wanted.incident]
        here = self.nodes[episode.spec.node_name]
        of_a_proof = [it for it in episode.status.findings if it.active and it.fault in BY_A_PROOF]
        said = [it for it in (*said_now(here), *of_a_proof) if it.recovery is not Recovery.RESTART_WORKLOAD]
        assert any(it.boot_id == here.boot_id for it in said), (wanted, self.story(episode.name))
        assert here.our_taint, (wanted, self.story(episode.name))


def to_remedying(world: World) -> None:
    """Run until the first attempt is written down."""
    for _ in range(20):
        world.turn(dt.timedelta(seconds=10))
        if world.status().attempts:
            return
    raise AssertionError(world.story())


def to_proving(world: World, boot: str = "boot-2") -> None:
    """Run a reboot through to the proof that is under way."""
    to_remedying(world)
    world.operation("inc-1-a1", OperationPhase.SUCCEEDED)
    world.boots("ip-1", boot)
    world.turns(2)
    assert world.phase() is Phase.PROVING, world.story()
    assert world.status().proofs, world.story()
