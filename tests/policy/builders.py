"""Builders of the values that the policy core reads: what the tests of policy/ share."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import msgspec

from fleetwell.api.incident import Command
from fleetwell.api.node_health import Machine, NodeFinding, NodeHealthStatus
from fleetwell.api.policy import (
    DisruptionBudget,
    DrainRule,
    Mode,
    Pace,
    PolicySpec,
    Remedy,
    Replacement,
    Rule,
    Rung,
    Selector,
    Template,
)
from fleetwell.health.vocabulary import Clears, Recovery, Source, Verdict
from fleetwell.policy.view import NodeView, PodsView, Policy

START = dt.datetime(2026, 1, 5, 9, 0, tzinfo=dt.UTC)
GPU = "gpu/GPU-1"
TEMPLATE = Template(api_version="example.org/v1", kind="ReplaceMachine")

BUS = "GpuFallenOffBus"
REMAP = "GpuRowRemapFailed"
HUNG = "ProbeHung"
UNKNOWN_XID = "GpuUnknownXid"
APP = "ApplicationCrash"
_ASKS = {
    BUS: (Verdict.BAD, Recovery.REBOOT),
    REMAP: (Verdict.BAD, Recovery.REPLACE),
    HUNG: (Verdict.UNKNOWN, Recovery.REBOOT),
    UNKNOWN_XID: (Verdict.UNKNOWN, Recovery.SUPPORT),
    APP: (Verdict.CONFIG, Recovery.RESTART_WORKLOAD),
}

LADDER = (Rung(remedy=Remedy.REBOOT, deadline="10m"), Rung(remedy=Remedy.REPLACE, deadline="20m"))
HARD = Rule(name="hardware", faults=("Gpu*",), drain=DrainRule(deadline="10m"), ladder=LADDER)
RESTART = Rung(remedy=Remedy.RESTART_WORKLOAD, deadline="5m")
JOBS = Rule(name="jobs", faults=("Application*",), ladder=(RESTART, *LADDER))
SILENCE = Rule(name="silence", faults=("Probe*", "AgentSilent"), tolerate="5m", ladder=LADDER)


def minutes(count: float) -> dt.timedelta:
    return dt.timedelta(minutes=count)


def spec(**changes: Any) -> PolicySpec:
    base = PolicySpec(
        selector=Selector(match_labels={"gpu": "yes"}),
        mode=Mode.ENFORCE,
        rules=(HARD, JOBS, SILENCE),
        budget=DisruptionBudget(max_unavailable_percent=34),
        pace=Pace(max_concurrent=2),
        replacement=Replacement(provider="template", template=TEMPLATE, capacity_deadline="30m"),
    )
    return msgspec.structs.replace(base, **changes)


def policy(name: str = "gpus", **changes: Any) -> Policy:
    return Policy(name=name, generation=1, spec=spec(**changes))


def finding(fault: str = BUS, component: str = GPU, boot: str = "boot-1", **changes: Any) -> NodeFinding:
    verdict, recovery = _ASKS[fault]
    base = NodeFinding(
        fault=fault,
        component=component,
        verdict=verdict,
        recovery=recovery,
        source=Source.EVENT,
        probe="kernel_log",
        clears=Clears.BOOT,
        first_seen=START,
        last_seen=START,
        boot_id=boot,
        evidence=(f"{fault} was seen",),
    )
    return msgspec.structs.replace(base, **changes)


def node(name: str = "ip-1", *findings: NodeFinding, boot: str = "boot-1", **changes: Any) -> NodeView:
    uid = changes.pop("uid", f"uid-{name}")
    health = NodeHealthStatus(node_uid=uid, boot_id=boot, settled=not findings, findings=findings)
    base = NodeView(
        name=name,
        uid=uid,
        pool="train",
        labels={"gpu": "yes"},
        boot_id=boot,
        health=health,
        agent_fresh=True,
        agent_known=True,
        pods=PodsView(to_evict=0),
        machine=Machine(provider_id=f"machine-of-{uid}"),
    )
    return replace(base, **changes)


def command(at: dt.datetime, by: str = "ada") -> Command:
    return Command(by=by, at=at, reason="because")
