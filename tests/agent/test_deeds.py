"""What an agent does to its node, with commands and files that stand in for the host's."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fleetwell.agent import deeds
from fleetwell.agent.deeds import NodeDeeds
from fleetwell.agent.settings import Settings
from fleetwell.api.node_operation import NodeOperationSpec, OperationKind, OperationPhase
from fleetwell.api.policy import ProofLevel
from fleetwell.health.vocabulary import Verdict
from fleetwell.probes import launch
from fleetwell.probes.inventory import Expected
from fleetwell.probes.protocol import ProofRow


class Bench:
    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "host"
        self.state = tmp_path / "state"
        self.paused = 0
        (self.root / "proc").mkdir(parents=True)
        (self.root / "usr/bin").mkdir(parents=True)

    @contextmanager
    def pause(self) -> Iterator[None]:
        self.paused += 1
        yield

    def deeds(self, reboot: str = "pass") -> NodeDeeds:
        settings = Settings(
            node_name="node-1",
            host_root=self.root,
            state_dir=self.state,
            reboot_command=(sys.executable, "-c", reboot),
            orderly_reboot=0.05,
        )
        return NodeDeeds(settings, Expected, self.pause)

    def smi(self, script: str) -> None:
        program = self.root / "usr/bin/nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(deeds, "SYNC_SECONDS", 0.0)
    return Bench(tmp_path)


def spec(kind: OperationKind, component: str = "") -> NodeOperationSpec:
    return NodeOperationSpec(
        kind=kind,
        node_name="node-1",
        node_uid="uid-1",
        incident="incident-1",
        operation_id="op-1",
        expected_boot_id="boot-1",
        deadline=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        component=component,
    )


async def test_a_reset_asks_the_drivers_own_tool_for_that_gpu_with_the_probes_away(bench: Bench) -> None:
    bench.smi('echo "$@"')
    status = await bench.deeds().do(spec(OperationKind.RESET_GPU, "gpu/GPU-1"), 10)
    assert status.phase is OperationPhase.SUCCEEDED
    assert status.message == "--gpu-reset -i GPU-1"
    assert bench.paused == 1


async def test_a_reset_that_is_refused_says_the_tools_own_words(bench: Bench) -> None:
    bench.smi('echo "GPU 00000000:53:00.0: In use by another client"; exit 255')
    status = await bench.deeds().do(spec(OperationKind.RESET_GPU, "gpu/GPU-1"), 10)
    assert status.phase is OperationPhase.FAILED
    assert "In use by another client" in status.message


async def test_a_reset_without_a_tool_fails_and_says_so(bench: Bench) -> None:
    status = await bench.deeds().do(spec(OperationKind.RESET_GPU, "gpu/GPU-1"), 10)
    assert status.phase is OperationPhase.FAILED
    assert "no nvidia-smi" in status.message


@pytest.mark.parametrize("component", ["host", "gpu/", "gpu/pci-0000:53:00", "nvlink/GPU-1/3", "nic/rdmap79s0", ""])
async def test_nothing_but_a_gpu_that_is_named_by_its_uuid_is_reset(bench: Bench, component: str) -> None:
    called = bench.root / "called"
    bench.smi(f"touch {called}; echo done")
    status = await bench.deeds().do(spec(OperationKind.RESET_GPU, component), 10)
    assert status.phase is OperationPhase.FAILED
    assert f"{component!r} is none" in status.message
    assert not called.exists()


async def test_a_reset_that_hangs_fails_at_its_deadline(bench: Bench) -> None:
    bench.smi("sleep 600")
    status = await bench.deeds().do(spec(OperationKind.RESET_GPU, "gpu/GPU-1"), 0.3)
    assert status.phase is OperationPhase.FAILED
    assert "no answer" in status.message


async def test_an_orderly_reboot_that_does_not_come_is_followed_by_sysrq(bench: Bench) -> None:
    trigger = bench.root / "proc/sysrq-trigger"
    trigger.touch()
    status = await bench.deeds().do(spec(OperationKind.REBOOT), 0.3)
    assert trigger.read_bytes() == b"b"  # After the s, each a write from the start, as the kernel takes them.
    assert status.phase is OperationPhase.FAILED
    assert "sysrq had no effect" in status.message


async def test_a_reboot_command_that_fails_is_named(bench: Bench) -> None:
    status = await bench.deeds("raise SystemExit('not authorised')").do(spec(OperationKind.REBOOT), 5)
    assert status.phase is OperationPhase.FAILED
    assert "not authorised" in status.message
    assert not (bench.root / "proc/sysrq-trigger").exists()


async def test_logs_are_gathered_into_one_folder(bench: Bench) -> None:
    (bench.root / "dev").mkdir()
    (bench.root / "dev/kmsg").write_text("3,0,1,-;NVRM: a line\n")
    bench.smi("echo the whole query")
    status = await bench.deeds().do(spec(OperationKind.COLLECT_LOGS), 10)
    assert status.phase is OperationPhase.SUCCEEDED
    assert (bench.state / "logs/op-1/kernel.log").read_text() == "3,0,1,-;NVRM: a line\n"
    assert (bench.state / "logs/op-1/nvidia-smi.txt").read_text() == "the whole query\n"


async def test_logs_that_could_not_be_gathered_are_a_failure(bench: Bench) -> None:
    bench.state.write_text("a file where the folder should be")
    status = await bench.deeds().do(spec(OperationKind.COLLECT_LOGS), 10)
    assert status.phase is OperationPhase.FAILED
    assert status.message.startswith("logs were not collected: ")


def row(check: str, verdict: Verdict, detail: str = "") -> ProofRow:
    return ProofRow(check=check, verdict=verdict, detail=detail)


@pytest.mark.parametrize(
    ("rows", "phase", "message"),
    [
        ((row("memory", Verdict.OK), row("dcgm", Verdict.OK)), OperationPhase.SUCCEEDED, "2 checks passed"),
        ((row("memory", Verdict.OK), row("dcgm", Verdict.CONFIG, "old")), OperationPhase.SUCCEEDED, "2 checks passed"),
        ((row("memory", Verdict.UNKNOWN, "no torch"),), OperationPhase.UNCERTAIN, "memory: no torch"),
        (
            (row("compute", Verdict.UNKNOWN, "x"), row("memory", Verdict.BAD, "3 words differ")),
            OperationPhase.FAILED,
            "memory: 3 words differ",
        ),
    ],
)
def test_a_proof_is_judged_by_its_worst_check_and_all_are_told(
    rows: tuple[ProofRow, ...], phase: OperationPhase, message: str
) -> None:
    status = deeds.judge(rows)
    assert (status.phase, status.message) == (phase, message)
    assert [(one.check, one.verdict, one.detail) for one in status.results] == [
        (one.check, one.verdict.value, one.detail) for one in rows
    ]


async def test_a_proof_that_gives_nothing_is_uncertain(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "python", lambda *_: [sys.executable, "-c", "print('Segmentation fault')"])
    status = await bench.deeds().do(spec(OperationKind.PROVE), 10)
    assert status.phase is OperationPhase.UNCERTAIN
    assert status.results == ()


@pytest.mark.parametrize("level", [ProofLevel.QUICK, ProofLevel.MEDIUM, ProofLevel.LONG])
async def test_a_proof_is_run_at_the_level_that_is_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, level: ProofLevel
) -> None:
    given: list[str] = []

    def python(name: str, *arguments: str) -> list[str]:
        given.extend([name, *arguments])
        row = '{"check": "memory", "verdict": "OK", "detail": ""}'
        return [sys.executable, "-c", f'print(\'{{"probe": "proof", "results": [{row}]}}\')']

    monkeypatch.setattr(launch, "python", python)
    asked = msgspec.structs.replace(spec(OperationKind.PROVE), level=level)
    status = await bench.deeds().do(asked, 10)
    assert status.phase is OperationPhase.SUCCEEDED
    assert given[:3] == ["proof", "--level", level.value]
    assert "--expect-gpus" not in given
    assert bench.paused == 1


def test_the_orderly_reboot_reaches_the_host_from_inside_a_container() -> None:
    inside = Settings(node_name="n", host_root=Path("/host"), state_dir=Path("/state"))
    assert inside.orderly()[0] == "nsenter"
    outside = Settings(node_name="n", host_root=Path("/"), state_dir=Path("/state"))
    assert outside.orderly() == ["systemctl", "reboot"]
