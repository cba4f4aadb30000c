"""Where a lab keeps things: one folder, from which every command finds the lab that is up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

NAMESPACE = "fleetwell"
POOL = "gpu"
DEVICE_RESOURCE = "nvidia.com/gpu"


def example(name: str) -> Path:
    """Find a script of ``examples/``: in the source tree, or where the wheel carries it.

    :raises FileNotFoundError: it is in neither.
    """
    here = Path(__file__).resolve().parent
    for folder in (here / "_examples", here.parents[2] / "examples"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"examples/{name} is neither beside the package nor in it; install fleetwell again")


def default_root() -> Path:
    """The lab's folder when none is named: below ``XDG_STATE_HOME``."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    return Path(os.environ.get("FLEETWELL_LAB") or state / "fleetwell" / "lab")


@dataclass(frozen=True)
class Site:
    """The parts of a lab's folder."""

    root: Path

    @property
    def controlplane(self) -> Path:
        """Data, certificates and logs of the control plane."""
        return self.root / "controlplane"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for people and kubectl."""
        return self.root / "kubeconfig"

    @property
    def socket(self) -> Path:
        """Where the process that runs the virtual nodes listens for commands."""
        return self.root / "host.sock"

    @property
    def logs(self) -> Path:
        """Logs of the lab's own processes."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Identities of the processes, so that another command can stop them."""
        return self.root / "run"

    @property
    def shared(self) -> Path:
        """A folder that every virtual node sees, as a shared filesystem would be."""
        return self.root / "shared"

    @property
    def parts(self) -> list[Path]:
        """Everything that a lab puts into its folder."""
        folders = [self.controlplane, self.logs, self.run, self.shared, self.root / "nodes"]
        files = [self.kubeconfig, self.socket, self.root / "host.json", *self.root.glob("controller*.kubeconfig")]
        return [*folders, *files]

    def node(self, name: str) -> NodeSite:
        """The folder of one virtual node."""
        return NodeSite(self.root / "nodes" / name)

    def node_names(self) -> list[str]:
        """The virtual nodes that have a folder."""
        folder = self.root / "nodes"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@dataclass(frozen=True)
class NodeSite:
    """The parts of a virtual node's folder."""

    root: Path

    @property
    def host(self) -> Path:
        """The root of the node's filesystem, as its agent sees the host."""
        return self.root / "host"

    @property
    def pods(self) -> Path:
        """One folder for each pod that ran here, with its logs."""
        return self.root / "pods"

    @property
    def devices(self) -> Path:
        """What the device plugin on this node offers, written by the plugin and read by the kubelet."""
        return self.host / "var/lib/kubelet/device-plugins/nvidia.json"

    @property
    def checkpoint(self) -> Path:
        """What the kubelet notes of the devices that it gave away."""
        return self.devices.parent / "kubelet_internal_checkpoint"

    @property
    def kubeconfig(self) -> Path:
        """The kubelet's own credentials."""
        return self.root / "kubelet.kubeconfig"
