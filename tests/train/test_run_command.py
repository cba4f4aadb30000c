from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetwell.cli.run import command
from fleetwell.train.protocol import Start
from fleetwell.train.settings import LaunchSettings
from fleetwell.train.worker_env import worker_environment


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--nnodes", "2", "--rdzv-endpoint", "a:1", "x.py"], "which of the 2 nodes is this?"),
        (["--nnodes", "2", "--node-rank", "1", "x.py"], "give --rdzv-endpoint HOST:PORT"),
        (["--nnodes", "1:4", "x.py"], "the number of nodes is fixed here"),
        (["--nproc_per_node", "many", "x.py"], "neither a number above 0"),
        (["--nnodes", "2", "--node_rank", "2", "--rdzv_endpoint", "a:1", "x.py"], "2 is not a node of 2"),
        (["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "a:b", "x.py"], "is not HOST:PORT"),
        (["-m", "--no-python", "x.py"], "exclude one another"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(command, arguments, env={"JOB_COMPLETION_INDEX": None, "NODE_RANK": None})
    assert result.exit_code == 2
    assert complaint in result.output


def launch(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from fleetwell.cli.run import command; command()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )


def test_everything_after_the_script_is_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text("import sys; print(sys.argv[1:])")
    for how in (["show.py"], ["-m", "show"]):
        done = launch(tmp_path, "--nproc-per-node=1", *how, "--nnodes", "9", "-m", "x")
        assert done.returncode == 0, done.stderr
        assert "[rank 0] ['--nnodes', '9', '-m', 'x']" in done.stdout


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = launch(tmp_path, "--no-python", "./nothing")
    assert done.returncode == 127
    assert "cannot run './nothing': No such file or directory" in done.stderr


def test_workers_get_torchruns_environment(tmp_path: Path) -> None:
    settings = LaunchSettings(("x",), nnodes=2, nproc=3, node=1, host="h", port=1, run_id="job", max_restarts=4)
    start = Start(6, "10.0.0.1", 4444, 2, (2, 3))
    environment = worker_environment({"PATH": "/bin", "OMP_NUM_THREADS": "5"}, settings, start, 1, tmp_path / "page")
    wanted = {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "5",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4444",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "4",
        "TORCHELASTIC_RUN_ID": "job",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "FLEETWELL_GENERATION": "6",
        "OMP_NUM_THREADS": "5",
        "PATH": "/bin",
    }
    assert {name: environment[name] for name in wanted} == wanted
