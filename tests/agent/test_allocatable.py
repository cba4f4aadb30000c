"""What the Node offers against what its hardware has."""

from __future__ import annotations

import pytest

from fleetwell.agent.allocatable import below


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        ({"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "cpu": "192"}, []),
        ({"nvidia.com/gpu": "7"}, ["the Node offers 7 of nvidia.com/gpu and the hardware has 8"]),
        ({"vpc.amazonaws.com/efa": "0"}, ["the Node offers 0 of vpc.amazonaws.com/efa and the hardware has 32"]),
        ({"nvidia.com/gpu": "80"}, []),  # Shared by time.
        ({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"}, None),
        ({"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "80"}, None),  # Shared by time, under another name.
        ({"rdma/hca_shared": "63"}, []),
        ({"rdma/hca_shared": "0"}, ["the Node offers none of rdma/hca_shared and the hardware has 2 adapters"]),
        ({"cpu": "192"}, None),
        ({"nvidia.com/gpu": "-1"}, None),
    ],
)
def test_fewer_than_there_are_is_said(offered: dict[str, str], said: list[str] | None) -> None:
    assert below(offered, gpus=8, efa=32, adapters=2) == said


def test_what_was_not_seen_is_not_compared() -> None:
    assert below({"nvidia.com/gpu": "0", "vpc.amazonaws.com/efa": "0"}, gpus=-1, efa=None, adapters=None) is None
