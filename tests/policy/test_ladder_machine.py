"""The ladder, budget and pace against a world that does as it likes: what must hold whatever happens."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fleetwell.api.incident import AttemptResult, IncidentStatus, Phase
from fleetwell.api.node_operation import OperationKind, OperationPhase, ProofResult
from fleetwell.api.policy import Mode
from fleetwell.policy.case import OPEN_RESULTS
from fleetwell.policy.evidence import AGENT_SILENT, PROOF_FAILED, PROOF_UNFINISHED
from fleetwell.policy.instructions import Instruction, Operate, OrderReplacement
from fleetwell.policy.others import others_at_work
from fleetwell.policy.pools import out_because
from fleetwell.policy.story import KEPT_DECISIONS
from fleetwell.policy.view import NodeView, PodsView
from policy.builders import APP, BUS, HUNG, LADDER, REMAP, UNKNOWN_XID, command, finding, node, policy
from policy.world import CheckedWorld

NAMES = tuple(f"ip-{number}" for number in range(1, 7))
PERCENT = 34
BACK = "is back as another Node"
"""What the episode of a machine says whose Node was made anew: it was out before, and asks no budget to stay out."""
BY_THE_CONTROLLER = {AGENT_SILENT, PROOF_FAILED, PROOF_UNFINISHED}

names = st.sampled_from(NAMES)
faults = st.sampled_from((BUS, REMAP, HUNG, UNKNOWN_XID, APP))


class Ladder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = CheckedWorld.of(*(node(name) for name in NAMES))
        self.boots = 1
        self.refused = False

    # What happens to nodes.

    @rule(hit=st.sets(names, min_size=2), fault=faults)
    def a_fault_is_found_on_many_nodes(self, hit: set[str], fault: str) -> None:
        for name in sorted(hit):
            self.a_fault_is_found(name, fault)

    @rule(name=names, fault=faults)
    def a_fault_is_found(self, name: str, fault: str) -> None:
        here = self.world.nodes[name]
        known = here.health.findings if here.health is not None else ()
        new = finding(fault, boot=here.boot_id)
        self.world.says(name, *(it for it in known if it.fault != fault), new)

    @rule(name=names)
    def what_was_found_clears(self, name: str) -> None:
        self.world.says(name)

    @rule(name=names, keeps=st.booleans())
    def a_node_restarts_by_itself(self, name: str, keeps: bool) -> None:
        here = self.world.nodes[name]
        old = here.health.findings if keeps and here.health is not None else ()
        self.boots += 1
        self.world.boots(name, f"boot-{self.boots}", *old)

    @rule(name=names, ready=st.booleans(), fresh=st.booleans())
    def kubelet_and_agent_come_and_go(self, name: str, ready: bool, fresh: bool) -> None:
        self.world.change(name, ready=ready, agent_fresh=fresh)

    @rule(name=names, cordoned=st.booleans())
    def somebody_cordons_or_uncordons(self, name: str, cordoned: bool) -> None:
        self.world.change(name, cordoned=cordoned)

    @rule(name=names, to_evict=st.integers(0, 2))
    def pods_come_and_go(self, name: str, to_evict: int) -> None:
        self.world.change(name, pods=PodsView(to_evict=to_evict, counted_at=self.world.now))

    @rule(name=names, who=st.sampled_from(("kubectl-taint", "kubelet", "")))
    def our_taint_is_taken_away(self, name: str, who: str) -> None:
        self.world.change(name, our_taint=False, taint_removed_by=who)

    @rule(name=names, at_work=st.booleans())
    def another_controller_is_at_work(self, name: str, at_work: bool) -> None:
        self.world.change(name, taints_of_others=("karpenter.sh/disrupted",) if at_work else ())

    @rule(name=names, unproven=st.booleans())
    def a_machine_is_exchanged(self, name: str, unproven: bool) -> None:
        self.boots += 1
        boot = f"boot-{self.boots}"
        self.world.nodes[name] = node(name, boot=boot, uid=f"uid-{name}-{boot}", unproven=unproven)

    @rule(name=names)
    def somebody_deletes_a_node_and_the_machine_registers_anew(self, name: str) -> None:
        machine, boot = self.world.nodes[name].machine, self.world.nodes[name].boot_id
        self.boots += 1
        anew = node(name, boot=boot, uid=f"uid-{name}-anew-{self.boots}", health=None, agent_known=False)
        self.world.nodes[name] = replace(anew, machine=machine)

    # What agents, people and the controller do.

    @precondition(lambda self: self.world.operations)
    @rule(data=st.data(), phase=st.sampled_from(OperationPhase), boots=st.booleans(), bad=st.booleans())
    def an_operation_moves_on(self, data: st.DataObject, phase: OperationPhase, boots: bool, bad: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.operations)))
        operation = self.world.operations[name]
        if operation.status.phase.ended:
            return
        results = (ProofResult(check="memory", verdict="BAD"),) if bad else ()
        self.world.operation(name, phase, results=results if operation.spec.kind is OperationKind.PROVE else ())
        here = self.world.nodes[operation.spec.node_name]
        right_boot = here.boot_id == operation.spec.expected_boot_id
        if operation.spec.kind is OperationKind.REBOOT and boots and right_boot:
            self.a_node_restarts_by_itself(here.name, keeps=bad)

    @precondition(lambda self: self.world.episodes)
    @rule(data=st.data(), word=st.sampled_from(("hold", "approve", "release", "retry", "no hold")))
    def a_person_speaks(self, data: st.DataObject, word: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.episodes)))
        said = None if word == "no hold" else command(self.world.now)
        self.world.tell(name, **{word.removeprefix("no "): said})

    @rule(mode=st.sampled_from(Mode))
    def the_policy_changes_its_mode(self, mode: Mode) -> None:
        self.world.policies = [policy(mode=mode)]

    @rule(problem=st.sampled_from(("", "a DaemonSet does not tolerate our taint")))
    def a_problem_comes_or_goes(self, problem: str) -> None:
        self.world.problem = problem

    @rule(turns=st.integers(1, 6), seconds=st.sampled_from((0, 10, 60)))
    def the_controller_takes_turns(self, turns: int, seconds: int) -> None:
        for _ in range(turns):
            self._turn(seconds, self._obey)

    @rule(seconds=st.sampled_from((0, 10, 400, 1300)), lost=st.booleans())
    def the_controller_takes_a_late_turn(self, seconds: int, lost: bool) -> None:
        self._turn(seconds, self._lose if lost else self._obey)

    def _turn(self, seconds: int, obey: Callable[[Instruction], bool]) -> None:
        world = self.world
        world.obey = obey
        before = {name: episode.status for name, episode in world.episodes.items()}
        nodes = dict(world.nodes)
        world.turn(dt.timedelta(seconds=seconds))
        self._budget_was_kept(before, nodes)
        self._attempts_had_a_ground(before)
        self._no_machine_was_let_in_by_making_its_node_anew()

    @rule(refused=st.booleans())
    def the_server_takes_no_operations_and_orders(self, refused: bool) -> None:
        self.refused = refused

    def _obey(self, wanted: Instruction) -> bool:
        return not (self.refused and isinstance(wanted, Operate | OrderReplacement))

    @staticmethod
    def _lose(_: Instruction) -> bool:
        return False

    def _budget_was_kept(self, before: dict[str, IncidentStatus], nodes: dict[str, NodeView]) -> None:
        world = self.world
        out = {
            name for name, it in world.nodes.items() if out_because(replace(it, our_taint=False)) and not it.unproven
        }
        held = {name for name, it in world.nodes.items() if it.our_taint and not it.unproven and nodes.get(name) == it}
        lost = {name for name, it in world.nodes.items() if not it.ready or others_at_work(it)}
        newly, taken = set(), set()
        for name, episode in world.episodes.items():
            here = world.nodes.get(episode.spec.node_name)
            ours = here is not None and here.uid == episode.spec.node_uid and not here.unproven
            if not ours or episode.status.quarantine is None or episode.status.phase.ended:
                continue
            taken.add(episode.spec.node_name)
            old = before.get(name)
            returned = BACK in episode.status.decisions[0].text
            if (old is None or old.quarantine is None) and not returned and episode.spec.node_name not in lost:
                newly.add(episode.spec.node_name)
        admitted = sum(1 for it in world.nodes.values() if not it.unproven)
        if newly:
            assert len(out | held | taken) <= max(1, admitted * PERCENT // 100), (newly, out, held, taken)

    def _no_machine_was_let_in_by_making_its_node_anew(self) -> None:
        for here in self.world.nodes.values():
            mine = [it for it in self.world.episodes.values() if it.status.machine == here.machine]
            taken = bool(mine) and mine[-1].status.timeline.quarantined is not None
            if taken and mine[-1].spec.node_uid != here.uid:
                assert self.world.policies[0].spec.mode is Mode.DRY_RUN, self.world.story(mine[-1].name)

    def _attempts_had_a_ground(self, before: dict[str, IncidentStatus]) -> None:
        for name, episode in self.world.episodes.items():
            known = len(before[name].attempts) if name in before else 0
            for attempt in episode.status.attempts[known:]:
                here = self.world.nodes[episode.spec.node_name]
                said = {it.fault for it in here.health.findings if it.boot_id == here.boot_id} if here.health else set()
                assert attempt.expected_boot_id == here.boot_id
                assert any(
                    it.active and it.boot_id == here.boot_id and it.fault in said | BY_THE_CONTROLLER
                    for it in episode.status.findings
                )
                assert self.world.policies[0].spec.mode is Mode.ENFORCE
                assert not self.world.problem

    # What must always hold.

    @invariant()
    def no_attempt_is_made_twice(self) -> None:
        made = [
            getattr(it, "name", "") for it in self.world.effects if type(it).__name__ in {"Operate", "OrderReplacement"}
        ]
        assert len(made) == len(set(made))
        for episode in self.world.episodes.values():
            attempts = episode.status.attempts
            assert [it.number for it in attempts] == sorted(it.number for it in attempts)
            assert sum(1 for it in attempts if it.result in OPEN_RESULTS) <= 1
            counted = [
                it.remedy for it in attempts[episode.status.retry_from :] if it.result is not AttemptResult.CANCELLED
            ]
            assert all(counted.count(rung.remedy) <= rung.attempts for rung in LADDER)

    @invariant()
    def one_episode_at_most_is_open_on_a_node(self) -> None:
        open_on = [it.spec.node_uid for it in self.world.episodes.values() if not it.status.phase.ended]
        assert len(open_on) == len(set(open_on))

    @invariant()
    def a_status_stays_bounded_and_explained(self) -> None:
        for episode in self.world.episodes.values():
            status = episode.status
            assert 0 < len(status.decisions) <= KEPT_DECISIONS
            assert status.summary
            waits = {Phase.NEEDS_PERSON}
            explained = status.next is not None or status.hold is not None
            assert status.phase.ended or status.phase in waits or explained, status

    def teardown(self) -> None:
        """When all is well again every quarantine ends, whatever had happened, and nothing of ours is left."""
        world = self.world
        self.refused = False
        world.policies, world.problem, world.obey = [policy()], "", self._obey
        for name in world.episodes:
            world.tell(name, hold=None)
        for name in NAMES:
            world.change(name, ready=True, agent_fresh=True, cordoned=False, taints_of_others=())
            world.change(name, pods=PodsView(to_evict=0))
            world.says(name)
        for turn in range(60):
            self._all_that_is_asked_is_done()
            world.turn(dt.timedelta(minutes=1))
            for episode in list(world.episodes.values()):
                if turn == 30 and episode.status.phase is Phase.NEEDS_PERSON:
                    self.a_node_restarts_by_itself(episode.spec.node_name, keeps=False)
        still_open = [it for it in world.episodes.values() if not it.status.phase.ended]
        assert not still_open, world.story(still_open[0].name)
        assert not [name for name, here in world.nodes.items() if here.our_taint]

    def _all_that_is_asked_is_done(self) -> None:
        world = self.world
        for name, operation in list(world.operations.items()):
            if not operation.status.phase.ended:
                world.operation(name, OperationPhase.SUCCEEDED)
                if operation.spec.kind is OperationKind.REBOOT:
                    self.a_node_restarts_by_itself(operation.spec.node_name, keeps=False)
        for name, order in list(world.orders.items()):
            episode = world.episodes[name.rpartition("-a")[0]]
            if order.state == "Ordered" and world.around(episode).node is not None:
                world.orders[name] = replace(order, state="Succeeded")
                self.a_machine_is_exchanged(episode.spec.node_name, unproven=True)


TestLadder = Ladder.TestCase
TestLadder.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
