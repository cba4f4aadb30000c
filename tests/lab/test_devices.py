from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fleetwell.lab.devices import Allocations, Device, Offer, read_offer, write_offer


def test_an_offer_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    path = tmp_path / "plugin" / "nvidia.json"
    write_offer(path, Offer(os.getpid(), [Device("GPU-1", healthy=True)]))
    assert read_offer(path) == [Device("GPU-1", healthy=True)]
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write_offer(path, Offer(gone.pid, [Device("GPU-1", healthy=True)]))
    assert read_offer(path) is None


def test_no_offer_and_half_an_offer_are_none(tmp_path: Path) -> None:
    assert read_offer(tmp_path / "missing") is None
    (tmp_path / "half").write_text('{"pid": 1, "devi')
    assert read_offer(tmp_path / "half") is None


def test_two_pods_never_share_a_gpu_and_an_unhealthy_one_is_given_to_none() -> None:
    allocations = Allocations()
    allocations.offered = [Device(f"GPU-{i}", healthy=i != 1) for i in range(4)]
    first = allocations.take("a", {"main": 1, "other": 0, "second": 1})
    assert first == ("GPU-0", "GPU-2")
    assert allocations.take("a", {"main": 1, "other": 0, "second": 1}) == first
    assert allocations.take("b", {"main": 2}) is None
    assert allocations.take("c", {"main": 1}) == ("GPU-3",)
    allocations.give_back("a")
    assert allocations.take("b", {"main": 2}) == ("GPU-0", "GPU-2")
    assert allocations.allocatable == 3
