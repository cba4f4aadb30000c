"""Which machine this is, which boot of it, and since when: read from the host's tree once, at the agent's start."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fleetwell.health.vocabulary import BootId

_DMI = "sys/class/dmi/id"
_NO_SERIAL = {"", "none", "not specified", "to be filled by o.e.m.", "default string", "0", "system serial number"}


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """One boot of one machine."""

    boot_id: BootId
    booted_at: float
    """Seconds since the epoch; 0 where the kernel does not say."""
    serial: str
    """What tells this machine from others: its serial number, else its UUID, else the name it was given."""
    instance_type: str
    driver_branch: int | None
    """Major version of the loaded NVIDIA driver."""

    def uptime(self, now: float) -> float:
        """Seconds since the boot; endless where that is not known, so that nothing is excused as just booted."""
        return now - self.booted_at if self.booted_at else float("inf")


def read_boot(host_root: Path, fallback: str) -> Boot:
    """Read it.

    :param fallback: the machine's name where its firmware has none, as on many virtual machines.
    :raises OSError: the boot id cannot be read; without it no finding could be told from one of an earlier boot.
    """
    boot_id = (host_root / "proc/sys/kernel/random/boot_id").read_text().strip()
    serials = (_text(host_root / _DMI / name) for name in ("product_serial", "product_uuid", "board_serial"))
    return Boot(
        boot_id=BootId(boot_id),
        booted_at=_booted_at(host_root),
        serial=next((text for text in serials if text.lower() not in _NO_SERIAL), fallback),
        instance_type=_text(host_root / _DMI / "product_name"),
        driver_branch=_branch(_text(host_root / "sys/module/nvidia/version")),
    )


def _booted_at(host_root: Path) -> float:
    for line in _text(host_root / "proc/stat").splitlines():
        key, _, number = line.partition(" ")
        if key == "btime" and number.strip().isdigit():
            return float(number)
    return 0.0


def _branch(version: str) -> int | None:
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
