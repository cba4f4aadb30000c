"""The child that runs nvidia-smi: on a host root with a tool of our own, and on the lab's virtual hardware."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetwell.lab import machine
from fleetwell.lab.hardware import Hardware
from fleetwell.probes import launch, nvidia_smi, protocol
from fleetwell.probes.nvidia_smi_reading import Asked, read
from fleetwell.probes.tool import NoAnswerError
from probes import smi_outputs as smi
from probes.verdicts import faults


def install(root: Path, name: str, body: str) -> None:
    """Put a tool into a host root."""
    tool = root / "usr/bin" / name
    tool.parent.mkdir(parents=True, exist_ok=True)
    tool.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    tool.chmod(0o755)


def test_a_machine_without_the_tool_says_so(tmp_path: Path) -> None:
    assert "no nvidia-smi" in nvidia_smi.look(tmp_path, None, {}).encode()


def test_the_child_reports_by_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "out.xml").write_text(smi.xml(changed={1: {"action": "Reset"}}), encoding="utf-8")
    install(tmp_path, "nvidia-smi", f"cat {tmp_path}/out.xml")
    argv = launch.module("nvidia_smi", {"host_root": str(tmp_path), "expected": 2, "deadline": 20})
    ended = subprocess.run(argv, env=dict(launch.environment()), capture_output=True, check=True, timeout=60)
    (report,) = protocol.read(ended.stdout, ("nvidia_smi",))
    assert [(one.fault, one.component) for one in report.observations] == [("GpuRecoveryActionReset", smi.GPU1)]
    assert {gpu.pci for gpu in report.inventory.gpus} == {"0000:53:00.0", "0000:64:00.0"}


def test_a_tool_that_makes_no_sense_leaves_the_answer_to_the_supervisor(tmp_path: Path) -> None:
    install(tmp_path, "nvidia-smi", "echo who knows; exit 0")
    with pytest.raises(NoAnswerError, match="who knows"):
        nvidia_smi.look(tmp_path, 8, {})


def test_a_tool_that_hangs_is_given_up_before_the_supervisor_does(tmp_path: Path) -> None:
    install(tmp_path, "nvidia-smi", "exec sleep 60")
    with pytest.raises(NoAnswerError, match="did not end"):
        nvidia_smi.look(tmp_path, 8, {}, deadline=0.2)


def test_a_tool_without_the_xml_is_asked_for_the_long_form(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(smi.long_form(1, {0: {"pending": "Yes"}}), encoding="utf-8")
    install(tmp_path, "nvidia-smi", f'[ "$2" = "-x" ] && exit 2; cat {tmp_path}/out.txt')
    assert faults(nvidia_smi.look(tmp_path, 1, {})) == {("GpuRowRemapPending", smi.GPU0)}


def test_the_labs_tool_is_read_as_the_real_one(tmp_path: Path) -> None:
    hardware = Hardware.create(machine.load("p5.48xlarge"), tmp_path / "host", "seed")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    columns = "count,uuid,pci.bus_id,gpu_recovery_action,ecc.errors.uncorrected.volatile.total,temperature.gpu.tlimit"
    for arguments in ([f"--query-gpu={columns}", "--format=csv"], ["-L"]):
        ended = subprocess.run(
            [str(hardware.nvidia_smi), *arguments], env=environment, capture_output=True, text=True, check=False
        )
        report = read(ended.stdout, Asked(code=ended.returncode, expected=8))
        assert faults(report) == set()
        assert report.encode().count('"uuid": "GPU-') == 8
