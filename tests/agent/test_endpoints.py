"""What an agent's endpoints are told of its settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleetwell.agent import endpoints
from fleetwell.agent.endpoints import Endpoints
from fleetwell.agent.settings import Settings


def test_silent_jobs_are_heard_where_the_host_and_its_runtime_keep_their_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[tuple[Path, Path | None]] = []

    class SilentJobs:
        def __init__(self, host_root: Path, *_heard: Any, runtime_root: Path | None) -> None:
            told.append((host_root, runtime_root))

        async def run(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(endpoints, "SilentJobs", SilentJobs)
    settings = Settings(node_name="n1", host_root=Path("/host"), state_dir=tmp_path, runtime_root=Path("/data"))
    nothing = cast("Any", SimpleNamespace(status=None))
    parts = [*Endpoints(settings, nothing, nothing, nothing, nothing, nothing, lambda: None).serving()]
    for part in parts:
        part.close()
    assert told == [(Path("/host"), Path("/data"))]
    assert len(parts) == 1
