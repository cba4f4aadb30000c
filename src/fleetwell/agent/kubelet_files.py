"""Where the kubelet of this node keeps its files."""

from __future__ import annotations

import os
from typing import Final

from fleetwell.agent import host_files

FOLDERS: Final = ("var/lib/kubelet", "var/lib/k0s/kubelet", "var/snap/microk8s/common/var/lib/kubelet")


def kubelet_folder(root: str) -> str:
    """Give the kubelet's folder below the host's root; the usual one where there is none yet.

    :raises OSError: links lead round and round.
    """
    for folder in FOLDERS:
        found = host_files.inside(root, folder)
        if os.path.isdir(found):  # noqa: PTH112 (once a second)
            return found
    return host_files.inside(root, FOLDERS[0])
