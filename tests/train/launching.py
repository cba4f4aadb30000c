"""Launchers as real processes, for tests: each is the command, with its output in a file."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_COMMAND = "from fleetwell.cli.run import command; command()"
FAST = ("--stop-timeout", "1", "--silence-timeout", "4", "--rdzv-timeout", "60")


def free_port() -> int:
    """A port that nothing uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(look: Callable[[], bool], *, within: float = 20.0, what: str = "it") -> None:
    """Wait for something that another process brings about; fail when it does not come."""
    deadline = time.monotonic() + within
    while not look():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {within:g} s")
        time.sleep(0.03)


@dataclass
class Launched:
    """One launcher."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, within: float = 30.0) -> int:
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the launcher did not end:\n{self.output}") from None

    def sees(self, text: str, within: float = 20.0) -> None:
        eventually(lambda: text in self.output, within=within, what=f"{text!r} in {self.log.name}")


@dataclass
class Ground:
    """A folder with a run directory, a script, and the launchers that were started there."""

    path: Path
    launched: list[Launched] = field(default_factory=list)
    port: int = field(default_factory=free_port)

    @property
    def run_dir(self) -> Path:
        return self.path / "run"

    def script(self, text: str) -> Path:
        script = self.path / "script.py"
        script.write_text(text, encoding="utf-8")
        return script

    def launch(
        self,
        script: Path,
        *arguments: str,
        node: int = 0,
        nnodes: int = 1,
        nproc: int = 1,
        flags: Sequence[str] = (),
        run_dir: Path | None = None,
    ) -> Launched:
        meeting = ["--rdzv-endpoint", f"127.0.0.1:{self.port}"] if nnodes > 1 else []
        size = ["--nnodes", str(nnodes), "--nproc-per-node", str(nproc), "--node-rank", str(node)]
        command = [sys.executable, "-c", _COMMAND, *size, "--run-dir", str(run_dir or self.run_dir)]
        log = self.path / f"launcher-{len(self.launched)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*command, *meeting, *FAST, *flags, str(script), *arguments],
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "FLEETWELL_TERMINATION_LOG": str(self.path / f"word-{node}.json")},
            )
        one = Launched(process, log)
        self.launched.append(one)
        return one

    def events(self, name: str | None = None, run_dir: Path | None = None) -> list[dict[str, Any]]:
        path = (run_dir or self.run_dir) / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if name in {None, event["event"]}]


@contextmanager
def ground_at(path: Path) -> Iterator[Ground]:
    """A ground whose launchers do not outlive it."""
    ground = Ground(path)
    try:
        yield ground
    finally:
        for one in ground.launched:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGKILL)
                one.process.wait()
