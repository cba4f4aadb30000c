"""What an agent is told at its start: flags and environment, read once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fleetwell.probes.inventory import Expected


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When one probe looks, in seconds."""

    interval: float
    deadline: float
    boot_grace: float = 0.0
    """For so long after a boot, a look that misses something is repeated instead of believed: devices may come late.
    Once a look was complete it is over."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set."""

    node_name: str
    host_root: Path
    state_dir: Path
    kubeconfig: Path | None = None
    """None: the pod's own service account."""
    namespace: str = "fleetwell"
    """Where the heartbeat Lease is."""
    expect: Expected = Expected()
    nvml: Timing = Timing(interval=20.0, deadline=15.0, boot_grace=60.0)
    sysfs: Timing = Timing(interval=60.0, deadline=10.0, boot_grace=60.0)
    proof_device: str = "auto"
    """Where a proof computes: ``auto``, ``cuda`` or ``cpu``."""
    heartbeat: float = 60.0
    silent_after: float = 3.0
    """Without a completed probe for so many of the longest interval (deadline added), the heartbeat stops."""
    reboot_command: tuple[str, ...] = ()
    """What asks for an orderly reboot; empty: systemctl of the host."""
    orderly_reboot: float = 180.0
    """Seconds that an orderly reboot may take before sysrq is used."""

    def orderly(self) -> list[str]:
        """Give the command that reboots this host in order."""
        if self.reboot_command:
            return list(self.reboot_command)
        if self.host_root == Path("/"):
            return ["systemctl", "reboot"]
        # In the host's namespaces: inside a chroot systemctl ignores the word reboot.
        return ["nsenter", "--target=1", "--mount", "--uts", "--ipc", "--net", "--", "systemctl", "reboot"]
