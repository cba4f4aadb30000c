"""RemediationPolicy: which nodes, how long each fault is tolerated, what is done, and how much may be out at once."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import msgspec

from fleetwell.api.fields import Count, Duration, Name, Percent, wire
from fleetwell.health.vocabulary import Recovery


class Mode(enum.StrEnum):
    """How far a policy goes. Recovery (untaint, release) goes on in all three."""

    ENFORCE = "Enforce"
    DRY_RUN = "DryRun"
    """Decides and says what it would do; touches no node."""
    PAUSED = "Paused"
    """Starts nothing new; what was begun is brought to its end."""


class QuarantineBy(enum.StrEnum):
    """How new work is kept off a node."""

    TAINT = "Taint"
    """Our own NoSchedule taint, ``fleetwell.io/quarantine``."""
    CORDON = "Cordon"
    """``spec.unschedulable``, for pools whose DaemonSets do not tolerate the taint."""


class Remedy(enum.StrEnum):
    """The rungs of the ladder."""

    RESTART_WORKLOAD = "restartWorkload"
    RESET_GPU = "resetGpu"
    REBOOT = "reboot"
    REPLACE = "replace"
    PERSON = "person"

    @property
    def recovery(self) -> Recovery:
        """The strength of this rung in the order of recoveries."""
        return Recovery.SUPPORT if self is Remedy.PERSON else Recovery(self.value)


class ProofLevel(enum.StrEnum):
    """How hard a node is tested before it is released."""

    NONE = "none"
    QUICK = "quick"
    MEDIUM = "medium"
    LONG = "long"


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename=wire):
    """A part of a spec that people write.

    A field that this version does not know is left aside when an object comes from the API server, so that CRDs newer
    than the controller cannot stop it; the server refuses a typo, and so does ``schema.unknown_fields`` for a file.
    """


class Rung(_Spec, frozen=True, kw_only=True):
    """One rung of a ladder."""

    remedy: Remedy
    attempts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 1
    """How often it is tried before the next rung."""
    deadline: Duration = "20m"
    """How long one attempt may take before it counts as failed."""


class DrainRule(_Spec, frozen=True, kw_only=True):
    """When and how the work on a quarantined node is moved away."""

    after: Duration = "0s"
    """How long running work stays after the quarantine began."""
    deadline: Duration = "30m"
    """How long the drain may take."""
    on_deadline: Literal["Hold", "Proceed"] = "Hold"
    """What follows when pods remain at the deadline: hold and name them, or go on with the remedy."""
    honor_do_not_disrupt: bool = True
    """Leave pods marked do-not-disrupt or safe-to-evict=false alone until the deadline."""


class Rule(_Spec, frozen=True, kw_only=True):
    """What is done about some faults. The first rule of a policy that names a fault applies to it."""

    name: Name
    faults: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Fault names; ``*`` stands for any run of characters, as in ``Nvlink*``."""
    tolerate: Duration = "0s"
    """How long the fault may last, added up within an episode, before the node is quarantined."""
    quarantine: bool = True
    """False: the fault is shown and nothing is done about it."""
    drain: DrainRule = DrainRule()
    ladder: tuple[Rung, ...] = (Rung(remedy=Remedy.REBOOT), Rung(remedy=Remedy.REPLACE))
    """Rungs in the order in which they are tried; rungs weaker than what the fault asks for are passed over."""


class DisruptionBudget(_Spec, frozen=True, kw_only=True):
    """How much working capacity may be out at once, in each pool. The smaller of the two limits applies."""

    max_unavailable_percent: Percent = 10
    """Percentage of the pool's nodes, rounded down; see ``atLeastOne``."""
    max_unavailable: Count | None = None
    at_least_one: bool = True
    """Let a small pool repair one node although its percentage rounds to 0, while none of its nodes is out by us."""


class Pace(_Spec, frozen=True, kw_only=True):
    """How many remedies run at once in a pool, and how fast they follow one another."""

    max_concurrent: Annotated[int, msgspec.Meta(ge=1)] = 2
    interval: Duration = "0s"
    """Shortest time between the starts of two remedies."""


class Proof(_Spec, frozen=True, kw_only=True):
    """The active test before a node takes work again."""

    level: ProofLevel = ProofLevel.QUICK
    deadline: Duration = "10m"


class Release(_Spec, frozen=True, kw_only=True):
    """When an episode ends well."""

    quiet: Duration = "2m"
    """How long a fault that went away by itself must stay away before its episode is cleared."""
    settle_deadline: Duration = "15m"
    """How long after a remedy the node may take to come back whole before the remedy counts as failed."""


class Template(_Spec, frozen=True, kw_only=True):
    """An object that the ``template`` provider creates to have a node replaced, from fixed fields."""

    api_version: Name
    kind: Name
    namespace: Name | None = None
    done: str = "status.phase"
    """Dotted path of the field that tells how it went."""
    succeeded: tuple[str, ...] = ("Succeeded", "Completed")
    failed: tuple[str, ...] = ("Failed",)


class Replacement(_Spec, frozen=True, kw_only=True):
    """Who replaces a machine."""

    provider: Literal["none", "template"] = "none"
    template: Template | None = None
    capacity_deadline: Duration = "30m"
    """How long after the old node is gone the pool may take to have its number of nodes back."""


class Selector(_Spec, frozen=True, kw_only=True):
    """Which nodes a policy governs: labels that must match and, where given, instance types (any of)."""

    match_labels: dict[str, str] = {}
    instance_types: tuple[str, ...] = ()


class Expected(_Spec, frozen=True, kw_only=True, omit_defaults=True):
    """What each node must have; what is left out is told by the agent's own means."""

    gpus: Count | None = None
    """How many GPUs."""
    efa: Count | None = None
    """How many EFA interfaces."""
    infiniband: Count | None = None
    """How many InfiniBand adapters, or RoCE adapters where there is no InfiniBand, each with a port that is up."""


class Limits(_Spec, frozen=True, kw_only=True):
    """How often things are tried before a person is asked."""

    attempts_per_episode: Annotated[int, msgspec.Meta(ge=1, le=50)] = 6
    attempts_per_machine_week: Annotated[int, msgspec.Meta(ge=1, le=100)] = 8


DEFAULT_POOL_LABELS = (
    "fleetwell.io/pool",
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)


class PolicySpec(_Spec, frozen=True, kw_only=True):
    """Spec of a RemediationPolicy."""

    selector: Selector
    mode: Mode = Mode.DRY_RUN
    priority: int = 0
    """Where two policies select a node the higher one governs; a tie holds, and says so."""
    rules: Annotated[tuple[Rule, ...], msgspec.Meta(min_length=1)]
    budget: DisruptionBudget = DisruptionBudget()
    pace: Pace = Pace()
    pool_labels: tuple[str, ...] = DEFAULT_POOL_LABELS
    """The first of these labels that a node wears names its pool."""
    quarantine: QuarantineBy = QuarantineBy.TAINT
    proof: Proof = Proof()
    release: Release = Release()
    replacement: Replacement = Replacement()
    limits: Limits = Limits()
    expected: Expected = Expected()
    """What each node that it governs must have, in every mode; comes before the agent's ``--expect``."""


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename=wire, omit_defaults=True):
    """Status of a RemediationPolicy, by the controller."""

    observed_generation: int = 0
    nodes: int = 0
    """How many nodes it governs."""
    open_incidents: int = 0
    problem: str = ""
    """What is wrong with it and what to do; empty when nothing is. Only a tie keeps it from starting anything new."""
