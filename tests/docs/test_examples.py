"""What a page shows as a command's answer is what the command answers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from click.testing import CliRunner

from fleetwell.cli import cli
from fleetwell.lab import machine
from fleetwell.lab.faults import inject
from fleetwell.lab.hardware import Hardware

PAGE = Path(__file__).parents[2] / "docs" / "diagnose.md"


def test_the_answer_about_a_lost_gpu_is_the_one_that_is_shown(tmp_path: Path) -> None:
    hardware = Hardware.create(machine.load("p5.48xlarge"), tmp_path / "host", "seed")
    inject(hardware, "gpu-lost", gpu=3)
    tool = [str(hardware.root / "usr/bin/nvidia-smi"), "-q"]
    smi = subprocess.run(tool, env=hardware.environment(), capture_output=True, check=False, timeout=60).stdout
    (tmp_path / "smi.txt").write_bytes(smi)
    log = hardware.root / "dev/kmsg"
    answer = CliRunner().invoke(
        cli, ["diagnose", "--kernel-log", str(log), "--nvidia-smi", str(tmp_path / "smi.txt"), "--expect", "gpus=8"]
    )
    hardware.dispose()
    shown = re.search(r"^\$ fleetwell diagnose .*\n((?s:.*?))^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown is not None
    assert answer.exit_code == 1
    assert answer.stdout.partition("\nCould not tell:")[0] == shown[1]
