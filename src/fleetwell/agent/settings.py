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
    again: float = 0.0
    """Seconds until the next look as long as not all is well, where the interval is too long for a debounce, and for
    what ends by two good looks. 0: the interval."""
    gap: float = 1.0
    """The least between two looks, however often one is asked for."""


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
    nvml: Timing = Timing(interval=30.0, deadline=15.0, boot_grace=60.0, again=10.0)
    sysfs: Timing = Timing(interval=60.0, deadline=10.0, boot_grace=60.0, again=20.0)
    nvidia_smi: Timing | None = Timing(interval=600.0, deadline=30.0, boot_grace=60.0, again=40.0, gap=40.0)
    """A second opinion, at seconds of CPU a look: seldom, and when it may add something. None: never."""
    dcgm: Timing | None = Timing(interval=300.0, deadline=45.0, boot_grace=60.0, again=60.0, gap=60.0)
    operand_pause: float = 3600.0
    """Seconds for which the GPU operator may keep its parts, and so our GPU probes, paused before it is a finding."""
    maintenance: str = "auto"
    """Whose metadata server is asked for announced maintenance: ``ec2``, ``gce``, ``off``, or ``auto`` by firmware."""
    maintenance_timing: Timing = Timing(interval=60.0, deadline=10.0)
    metadata_url: str = ""
    """Where that server is; empty: at the provider's own address."""
    proof_device: str = "auto"
    """Where a proof computes: ``auto``, ``cuda`` or ``cpu``."""
    heartbeat: float = 60.0
    silent_after: float = 3.0
    """Without a completed probe for so many of the longest interval (deadline added), the heartbeat stops."""
    metrics_address: str = ""
    """``host:port`` of the endpoint for metrics and job reports; empty: none."""
    report_socket: Path | None = None
    """Unix socket for job reports, where jobs may mount a path of the host."""
    runtime_root: Path | None = None
    """Where containerd or CRI-O keeps its data on the host; None: at one of the usual places."""
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
