from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from pathlib import Path

import pytest

from fleetwell.train.channel import Channel, WorkerPhase
from fleetwell.train.crew import Crew
from fleetwell.train.output import OutputPump
from fleetwell.train.protocol import Failure, Outcome, Start
from fleetwell.train.settings import LaunchSettings, Limits
from fleetwell.train.worker import Worker
from train.launching import eventually


def crew_of(tmp_path: Path, script: str, failures: list[Failure], *, nproc: int = 1) -> tuple[Crew, io.BytesIO]:
    settings = LaunchSettings(
        (sys.executable, "-c", script), 1, nproc, 0, "127.0.0.1", 0, limits=Limits(stop=0.2, kill=0.3)
    )
    out = io.BytesIO()
    return Crew(settings, Start(1, "127.0.0.1", 1, 0, (nproc,)), tmp_path, (out, out), failures.append), out


async def test_a_worker_that_survives_sigkill_is_given_up_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(Worker, "signal", lambda _worker, number: signals.append(number))
    started: list[Worker] = []
    start = Worker.start

    async def remembered(*arguments: object) -> Worker:
        started.append(await start(*arguments))  # type: ignore[arg-type]  # passed on as they came
        return started[-1]

    monkeypatch.setattr(Worker, "start", remembered)
    crew, _ = crew_of(tmp_path, "import time; time.sleep(60)", [])
    crew.end("over")
    exited = await asyncio.wait_for(crew.run(), 10)
    assert (exited.outcome, exited.abandoned) == (Outcome.ENDED, (started[0].pid,))
    assert signals == [signal.SIGKILL]  # SIGTERM was asked for before there was a worker
    os.kill(started[0].pid, signal.SIGKILL)
    started[0]._process.wait()


async def test_progress_stays_readable_after_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, signal\nfrom fleetwell.train.channel import Channel, WorkerPhase\n"
        "page = Channel.open(os.environ['FLEETWELL_CHANNEL'])\npage.phase = WorkerPhase.STEPPING\n"
        "page.step, page.saved = 17, 10\nprint('last words', end='')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    failures: list[Failure] = []
    crew, out = crew_of(tmp_path, script, failures)
    exited = await crew.run()
    assert (exited.outcome, exited.last_step, exited.saved_step) == (Outcome.FAILED, 17, 10)
    assert [failure.code for failure in failures] == [-9]
    assert out.getvalue() == b"[rank 0] last words\n"


async def test_the_children_of_a_dead_worker_do_not_outlive_it(tmp_path: Path) -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    crew, out = crew_of(tmp_path, script, [])
    exited = await asyncio.wait_for(crew.run(), 10)
    assert exited.outcome is Outcome.DONE
    child = Path(f"/proc/{int(out.getvalue().split()[-1])}/stat")
    eventually(lambda: not child.exists() or child.read_text().split()[2] == "Z", what="the end of the child")


async def test_output_without_an_end_of_line_is_passed_on_in_pieces() -> None:
    sink = io.BytesIO()
    pump = OutputPump(3, sink)
    pump.data_received(b"one\ntwo\r\n" + b"x" * 40_000)
    pump.data_received(b"y")
    pump.connection_lost(None)
    lines = sink.getvalue().split(b"\n")
    assert lines[:2] == [b"[rank 3] one", b"[rank 3] two"]
    assert all(line.startswith(b"[rank 3] ") and len(line) < 17_000 for line in lines[:-1])
    assert sum(line.count(b"x") for line in lines) == 40_000
    assert pump.last_words == "x" * 500


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "Traceback\nRuntimeError: CUDA error: device lost\nFor debugging consider this\n",
            "RuntimeError: CUDA error: device lost",
        ),
        ("[rank1]: torch.distributed.DistNetworkError: gone\n", "torch.distributed.DistNetworkError: gone"),
        ("ValueError: first\nduring it\nKeyError: 'second'\n", "KeyError: 'second'"),
        ("KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("loading\nsegfault soon\n\n", "segfault soon"),
        ("", ""),
    ],
)
async def test_the_last_words_are_the_exception_and_not_the_advice_below_it(said: str, words: str) -> None:
    pump = OutputPump(0, io.BytesIO())
    pump.data_received(said.encode())
    assert pump.last_words == words


def test_a_page_that_was_scribbled_on_reads_as_not_begun(tmp_path: Path) -> None:
    page = Channel.create(tmp_path / "page")
    page._words[1] = 77
    page.step = -4
    assert (page.phase, page.step) == (WorkerPhase.STARTING, 0)
    page.close()
