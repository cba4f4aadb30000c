"""A host with RDMA adapters, for the network probes."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.rdma_host import RdmaHost


@pytest.fixture
def host(tmp_path: Path) -> RdmaHost:
    return RdmaHost(tmp_path)
