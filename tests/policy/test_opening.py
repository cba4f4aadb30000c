"""How an episode begins: of what kind, with what on record, and told in which words."""

from typing import Any

from fleetwell.api.incident import IncidentKind, Phase
from fleetwell.api.node_health import Machine, NodeFinding
from fleetwell.api.node_operation import OperationPhase
from fleetwell.health.vocabulary import Recovery
from fleetwell.policy.opening import Opening, opens
from policy.builders import REMAP, START, finding, node, policy
from policy.world import World

POLICY = policy()


def opened(*findings: NodeFinding, **changes: Any) -> Opening:
    opening = opens(node("ip-1", *findings, **changes), POLICY, START)
    assert opening is not None
    return opening


def test_a_repair_begins_by_waiting_with_the_strongest_fault_and_its_evidence_in_words() -> None:
    spec, status = opened(finding(), finding(REMAP))
    assert spec.kind is IncidentKind.REPAIR
    assert status.phase is Phase.TOLERATING
    assert status.recovery is Recovery.REPLACE
    assert len(status.findings) == 2
    assert status.counted_at == START
    assert status.decisions[-1].text == "opened: GpuRowRemapFailed on gpu/GPU-1: GpuRowRemapFailed was seen"
    assert status.summary.startswith("GpuRowRemapFailed on gpu/GPU-1; ")


def test_a_new_node_begins_by_proving_itself() -> None:
    spec, status = opened(unproven=True)
    assert spec.kind is IncidentKind.ADMISSION
    assert status.phase is Phase.PROVING
    assert status.counted_at is None
    assert status.decisions[-1].text == "opened: a new node has to prove itself"
    assert status.summary.startswith("new node; ")


def test_an_episode_counts_in_the_pool_that_the_nodes_labels_name() -> None:
    labels = {"gpu": "yes", "karpenter.sh/nodepool": "serve"}
    assert opened(finding(), pool="", labels=labels).status.pool == "serve"
    assert opened(finding(), pool="train", labels=labels).status.pool == "train"


def test_the_machine_is_taken_down_as_its_agent_knows_it_else_as_its_node_does() -> None:
    mine = Machine(provider_id="of-the-node")
    assert opened(unproven=True, health=None, machine=mine).status.machine == mine


def test_that_another_machine_was_let_in_lets_no_new_one_in() -> None:
    world = World.of(node("ip-1", unproven=True))
    world.turn()
    world.operation("inc-1-p1", OperationPhase.SUCCEEDED)
    world.turn()
    past = list(world.episodes.values())
    assert past[0].status.phase is Phase.RELEASED
    assert opens(node("ip-1", unproven=True), POLICY, START, past) is None
    assert opens(node("ip-1", unproven=True, uid="another"), POLICY, START, past) is not None


def test_nothing_is_opened_for_a_node_that_is_being_deleted() -> None:
    assert opens(node("ip-1", finding(), deleting=True), POLICY, START) is None
