"""A GPU that somebody else uses is left alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetwell.probes import proof_vitals
from fleetwell.probes.nvml_binding import pynvml
from probes.proof_devices import Clock

MIB = 1 << 20


class Nvml:
    """Answers of one GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pids: list[int] = []
        self.used = 3 * MIB
        self.mig = 0
        self.error = 0
        self.proof = 1 << 21
        for name, answer in (
            ("nvmlDeviceGetComputeRunningProcesses", self._processes),
            ("nvmlDeviceGetGraphicsRunningProcesses", lambda _: []),
            ("nvmlDeviceGetMemoryInfo", lambda _, version: SimpleNamespace(used=self.used, version=version)),
            ("nvmlDeviceGetMigMode", lambda _: (self.mig, self.mig)),
        ):
            monkeypatch.setattr(pynvml, name, answer)

    def _processes(self, _: object) -> list[SimpleNamespace]:
        if self.error:
            raise pynvml.NVMLError(self.error)
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def why_not(self) -> str:
        return proof_vitals.why_not(object(), 512, self.proof)


@contextlib.contextmanager
def sleeping() -> Iterator[int]:
    """Start a process whose name is as hostile to the reader of ``/proc/PID/stat`` as a name can be."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "a) S 1 (b"
        program.symlink_to("/bin/sleep")
        with subprocess.Popen([program, "60"]) as process:
            try:
                yield process.pid
            finally:
                process.kill()


@pytest.fixture
def foreign() -> Iterator[int]:
    with sleeping() as pid:
        yield pid


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    return Nvml(monkeypatch)


def test_an_idle_gpu_may_be_used(nvml: Nvml) -> None:
    assert nvml.why_not() == ""


def test_a_gpu_that_a_foreign_process_uses_is_not_disturbed(nvml: Nvml, foreign: int) -> None:
    nvml.pids = [foreign]
    assert nvml.why_not() == f"in use by pid {foreign}: not disturbed"


def test_a_process_that_is_already_gone_or_not_ours_to_see_counts_as_foreign(nvml: Nvml) -> None:
    nvml.pids = [1 << 22]
    assert "in use by pid 4194304" in nvml.why_not()


def test_the_proofs_own_workers_are_not_foreign(nvml: Nvml, foreign: int) -> None:
    nvml.pids, nvml.proof = [os.getpid(), foreign], os.getpid()
    nvml.used = 4000 * MIB
    assert nvml.why_not() == ""


def test_a_worker_that_is_about_to_be_gone_is_waited_for_a_moment(nvml: Nvml, foreign: int) -> None:
    nvml.pids, clock = [1 << 22], Clock()

    def pause(seconds: float) -> None:
        clock.now += seconds
        nvml.pids = [] if clock.now >= 1 else nvml.pids

    assert proof_vitals.why_not_yet(object(), 512, nvml.proof, clock.time(5), pause) == ""
    nvml.pids = [foreign]
    assert f"in use by pid {foreign}" in proof_vitals.why_not_yet(object(), 512, nvml.proof, clock.time(0), pause)


def test_what_the_same_shell_has_started_is_foreign_and_what_the_proof_has_started_is_not() -> None:
    with sleeping() as proof, sleeping() as training:
        assert os.getsid(training) == os.getsid(proof), "one shell started both"
        assert proof_vitals.ours(proof, proof)
        assert not proof_vitals.ours(training, proof)
        assert proof_vitals.ours(training, os.getpid()), "this process started it"
        assert not proof_vitals.ours(os.getpid() + (1 << 21), proof), "one that does not exist"


def test_memory_in_use_without_a_process_is_somebody_elses(nvml: Nvml) -> None:
    nvml.used = 9000 * MIB
    assert nvml.why_not() == "9000 MiB are in use by a process that does not show: not disturbed"


def test_a_gpu_in_instances_is_not_tested_as_a_whole(nvml: Nvml) -> None:
    nvml.mig = 1
    assert "MIG is on" in nvml.why_not()


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_a_driver_that_does_not_tell_who_uses_a_gpu_is_no_leave_to_use_it(nvml: Nvml, error: int) -> None:
    nvml.error = error
    assert "does not tell who uses it" in nvml.why_not()
