"""The commands that read a cluster, and a person's word on an incident."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from control.ground import CUSTOM, Controller, Fleet, finding
from fleetwell.cli import explain, incidents, nodes
from fleetwell.cli.cluster import plain
from fleetwell.kube.client import Client

Run = Callable[..., Result]


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.policy(mode="DryRun")
    fleet.working("a", "b")
    fleet.bad("a")
    asyncio.run(Controller(fleet).settle())
    return fleet


@pytest.fixture
def run(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Run:
    @asynccontextmanager
    async def connected(kubeconfig: Path | None, context: str | None) -> AsyncIterator[Client]:
        del kubeconfig, context
        yield fleet.api

    commands = {"incidents": incidents, "explain": explain, "nodes": nodes}
    for module in commands.values():
        monkeypatch.setattr(module, "connected", connected)

    def run(verb: str, *arguments: str) -> Result:
        return CliRunner().invoke(commands[verb].command, list(arguments))

    return run


def test_incidents_are_listed_with_their_hold(fleet: Fleet, run: Run) -> None:
    result = run("incidents")
    assert result.exit_code == 0
    header, row = result.stdout.splitlines()
    assert header.split() == ["NAME", "NODE", "PHASE", "FOR", "HELD", "SUMMARY"]
    assert row.split()[:3] == [fleet.incident()["metadata"]["name"], "a", "Tolerating"]
    assert "DryRun" in row


def test_json_is_the_objects_themselves(run: Run) -> None:
    (found,) = json.loads(run("incidents", "-o", "json").stdout)
    assert found["status"]["phase"] == "Tolerating"


def test_a_word_is_written_with_the_name_that_the_api_server_knows(fleet: Fleet, run: Run) -> None:
    name = fleet.incident()["metadata"]["name"]
    result = run("incidents", name, "--hold", "--reason", "looking at it")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "hint: fleetwell explain a" in result.stderr
    hold = fleet.incident()["spec"]["hold"]
    assert (hold["by"], hold["reason"]) == ("ada", "looking at it")
    run("incidents", name, "--resume")
    assert "hold" not in fleet.incident()["spec"]


@pytest.mark.parametrize("arguments", [["--hold"], ["x", "--release"], ["x", "--approve", "--reason", " "]])
def test_a_word_needs_an_incident_and_a_reason(run: Run, arguments: list[str]) -> None:
    result = run("incidents", *arguments)
    assert result.exit_code == 2
    assert "needs" in result.stderr


def test_a_word_on_an_incident_that_is_over_is_refused(fleet: Fleet, run: Run) -> None:
    name = fleet.incident()["metadata"]["name"]
    fleet.api.edit(f"{CUSTOM}/incidents/{name}", lambda it: it["status"].update(phase="Cleared"))
    result = run("incidents", name, "--retry", "--reason", "again")
    assert result.exit_code == 1
    assert "is over; nothing was changed" in result.stderr


def test_an_incident_that_is_not_there_is_said_with_a_hint(run: Run) -> None:
    result = run("incidents", "nope")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: there is no incident nope",
        "hint: fleetwell incidents --all lists them",
    ]


def test_one_incident_is_told_with_its_decisions(fleet: Fleet, run: Run) -> None:
    told = run("incidents", fleet.incident()["metadata"]["name"]).stdout
    assert "GpuFallenOffBus on gpu/GPU-1: BAD, asks for reboot" in told
    assert "opened: GpuFallenOffBus" in told
    assert "held      DryRun" in told


def test_explain_tells_an_episode_and_a_node_at_rest(run: Run) -> None:
    told = run("explain", "a").stdout
    assert "evidence: GpuFallenOffBus" in told
    assert "budget of pool train" in told
    rest = run("explain", "b").stdout.splitlines()
    assert rest[:2] == ["b: no incident", "policy gpu governs it, in pool train"]
    assert run("explain", "c").exit_code == 1


def test_what_several_probes_see_is_told_once_with_its_evidence(fleet: Fleet, run: Run) -> None:
    seen = finding("GpuFallenOffBus", "reboot", "boot-1", fleet.time.now())
    said = {"nvml": "lost, says NVML", "pci": "reads all ones"}
    fleet.healthy("b", findings=[{**seen, "probe": probe, "evidence": [line]} for probe, line in said.items()])
    told = run("explain", "b").stdout.splitlines()
    (line,) = [number for number, line in enumerate(told) if line.startswith("found: ")]
    assert told[line : line + 3] == [
        "found: GpuFallenOffBus on gpu/GPU-1: BAD by nvml and pci, asks for reboot",
        "  | lost, says NVML",
        "  | reads all ones",
    ]


def test_nodes_are_listed_with_what_their_agents_say(run: Run) -> None:
    header, a, b = run("nodes").stdout.splitlines()
    assert header.split() == ["NODE", "POOL", "WORK", "HEALTH", "AGENT", "GPUS", "INCIDENT", "SUMMARY"]
    assert "BAD" in a
    # The test's heartbeats are of the test's clock: long silent by the one of this machine.
    assert b.split()[:2] == ["b", "train"]
    assert json.loads(run("nodes", "-o", "json").stdout)[0]["node"] == "a"


def test_hostile_text_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2Jb\n") == "a\ufffd[2Jb\ufffd"
