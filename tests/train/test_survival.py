"""The example under the launcher, disturbed and not: it must end with the same bits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from train.launching import Ground, Launched, eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_ddp.py"
STEPS = 90


def workers_of(launcher: Launched) -> list[int]:
    pid = launcher.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_a_drain_of_node_0_and_a_killed_rank_leave_the_loss_of_an_undisturbed_run(ground: Ground) -> None:
    calm = ground.path / "calm"
    alone = ground.launch(EXAMPLE, "--steps", str(STEPS), "--every", "1000", nproc=4, run_dir=calm)

    arguments = ("--steps", str(STEPS), "--every", "20", "--step-ms", "40")
    nodes = [
        ground.launch(EXAMPLE, *arguments, node=node, nnodes=2, nproc=2, flags=["--max-restarts", "1"])
        for node in (0, 1)
    ]
    nodes[0].sees("step 20 loss", within=90)
    nodes[0].process.send_signal(signal.SIGTERM)
    assert nodes[0].wait() == 143, nodes[0].output
    nodes.append(ground.launch(EXAMPLE, *arguments, node=0, nnodes=2, nproc=2, flags=["--max-restarts", "1"]))
    nodes[2].sees("step 60 loss", within=90)
    eventually(lambda: "step=60" in nodes[2].output, what="the checkpoint of step 60")
    os.kill(workers_of(nodes[1])[0], signal.SIGKILL)
    assert [one.wait(within=90) for one in (nodes[1], nodes[2])] == [0, 0], nodes[2].output

    assert alone.wait(within=90) == 0, alone.output

    drained, failed, done = ground.events("generation_ended")
    assert [one["reason"] for one in (drained, failed, done)] == ["drain", "failure", "done"]
    assert drained["saved_step"] == drained["last_step"]
    assert failed["root"]["rank"] == 2
    first, second, third = ground.events("generation_resumed")
    assert (first["resumed_step"], first["steps_lost"]) == (0, 0)
    assert (second["resumed_step"], second["steps_lost"]) == (drained["saved_step"], 0)
    assert third["resumed_step"] % 20 == 0
    assert third["steps_lost"] == failed["last_step"] - third["resumed_step"]
    results = [json.loads((folder / "result.json").read_text()) for folder in (calm, ground.run_dir)]
    assert results[0] == results[1]
