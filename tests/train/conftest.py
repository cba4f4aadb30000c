from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from train.launching import Ground, ground_at


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with ground_at(tmp_path) as made:
        yield made
