"""What ``nvidia-smi`` says when it fails, as text and as exit code.

An exit code alone is not trusted either way: a tool that found nothing may end with 0, and a code that the text does
not explain leaves the answer open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleetwell.probes.pasted import LINE_LIMIT, around

_HANDLE = r"unable to determine the device handle for gpu\s*\d*:?\s*"
_PCI = r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"


@dataclass(frozen=True)
class Complaint:
    """One thing that the tool complained of."""

    fault: str
    said: str
    pci: str = ""
    """Of which GPU; empty where it is the whole machine's."""
    verdict: str = ""
    recovery: str = ""
    whole: bool = False
    """Nothing else is to be expected: the tool could not start."""


@dataclass(frozen=True)
class _Text:
    pattern: re.Pattern[str]
    fault: str
    whole: bool = False
    recovery: str = ""
    verdict: str = ""


def _text(pattern: str, fault: str, *, whole: bool = False, recovery: str = "", verdict: str = "") -> _Text:
    return _Text(re.compile(pattern, re.IGNORECASE), fault, whole, recovery, verdict)


_TEXTS = (
    _text(rf"{_HANDLE}{_PCI}:?.*(?:gpu is lost|lost)", "GpuLost"),
    _text(rf"{_HANDLE}{_PCI}:?.*requires? (?:a )?reset", "GpuResetRequired"),
    _text(rf"{_HANDLE}{_PCI}:?.*insufficient external power", "GpuPowerCable"),
    _text(rf"{_HANDLE}{_PCI}:?.*corrupted infoROM", "GpuInforomCorrupt"),
    # The one who looked may not: that says nothing of the GPU.
    _text(
        rf"{_HANDLE}{_PCI}:?.*(?:insufficient permissions|blocked by the operating system)",
        "GpuHandleError",
        verdict="UNKNOWN",
        recovery="none",
    ),
    _text(rf"{_HANDLE}{_PCI}", "GpuHandleError"),
    _text(r"unable to determine the device handle for gpu.*gpu is lost", "GpuLost"),
    _text(r"unable to determine the device handle for gpu", "GpuHandleError"),
    _text(rf"gpu {_PCI} is lost|^NVML: GPU is lost", "GpuLost"),
    _text(r"^NVML: GPU requires reset", "GpuResetRequired"),
    _text(r"gpu is lost\.?\s+reboot the system", "GpuLost"),
    _text(r"no devices (?:were )?found", "GpuMissing", whole=True),
    _text(r"couldn'?t communicate with the nvidia driver", "DriverNotLoaded", whole=True),
    _text(r"failed to initialize nvml: driver not loaded", "DriverNotLoaded", whole=True),
    _text(r"failed to initialize nvml: driver/library version mismatch", "DriverLibraryMismatch", whole=True),
    _text(r"failed to initialize nvml: (?:gpu is lost|.*fallen off the bus)", "GpuLost", whole=True),
    _text(r"failed to initialize nvml: unknown error", "ContainerLostGpus", whole=True),
    _text(
        r"failed to initialize nvml: (?:timeout|not found|insufficient permissions|.*)$", "ProbeNonsense", whole=True
    ),
    _text(r"couldn'?t find libnvidia-ml", "DriverOperandMissing", whole=True),
    # Nobody has looked: the tool may be elsewhere (a driver container), and of the GPUs nothing is known.
    _text(
        r"nvidia-smi'?: (?:command )?not found|nvidia-smi.*no such file"
        r"|command 'nvidia-smi' not found|'nvidia-smi' is not recognized|nvidia-smi\S* executable file not found",
        "DriverOperandMissing",
        whole=True,
        verdict="UNKNOWN",
    ),
    _text(rf"infoROM is corrupted at gpu {_PCI}", "GpuInforomCorrupt"),
    _text(r"infoROM is corrupted", "GpuInforomCorrupt"),
    _text(r"power cables? (?:are|is) not properly attached", "GpuPowerCable"),
    _text(r"detected an interrupt issue", "GpuInitFailed"),
    # Somebody asked for a reset, and it was refused: what comes after a reset is a reboot (NVSentinel #1692).
    _text(rf"gpu {_PCI}(?: could not be reset)?: in use by another client", "GpuResetRequired", recovery="reboot"),
    _text(r"nvml library version:? \S+", "", whole=False),
    _text(r"command terminated with exit code [1-9]\d*", "ProbeNonsense"),
)
"""The first that matches counts. An empty fault: a line that only goes with another."""

_CODES = {
    6: "GpuMissing",
    8: "GpuPowerCable",
    9: "DriverNotLoaded",
    12: "DriverOperandMissing",
    14: "GpuInforomCorrupt",
    15: "GpuLost",
}

_HARMLESS = (
    re.compile(r"Please also try adding directory that contains libnvidia-ml\.so .*"),
    re.compile(r"\[(?:HAMI-core|4pdvGPU) (?:Msg|Info|Debug|Warn)\(.*\)\]: .*"),  # what shares GPUs between pods
    re.compile(r"The following GPUs could not be reset:"),
    re.compile(r"\d+ devices? (?:is|are) currently being used by one or more other processes\b.*"),
    re.compile(r"sudo (?:apt|snap|dnf)(?:-get)? install .*"),  # what a shell offers where the tool is missing
    re.compile(r"(?:See 'snap info .*|operable program or batch file\.)"),
)
LIMIT = 64
"""More complaints than this are not listed."""


def complaint(line: str, *, in_container: bool | None) -> Complaint | None:
    """Read one line; None when it is no complaint that is known."""
    said = line[:LINE_LIMIT].strip()
    for text in _TEXTS:
        found = text.pattern.search(said)
        if found is None:
            continue
        pci = found.groupdict().get("pci") or ""
        if text.fault == "ContainerLostGpus":
            return _unknown_error(said, in_container=in_container)
        recovery = "none" if text.fault == "ProbeNonsense" else text.recovery
        return Complaint(text.fault, said, pci, text.verdict, recovery, text.whole)
    return None


def _unknown_error(said: str, *, in_container: bool | None) -> Complaint:
    """Judge NVML's unknown error by where it was read.

    In a container it is the known loss of device access after the runtime's cgroups were rewritten. Where nobody says
    where it was read it is taken for that, since hosts hardly ever print it; on a host it says nothing.
    """
    if in_container is False:
        return Complaint("GpuHandleError", f"{said} (on the host itself)", verdict="UNKNOWN", whole=True)
    note = "" if in_container else " (taken for a container's; on a host it leaves the answer open)"
    return Complaint("ContainerLostGpus", said + note, whole=True)


def by_code(code: int, explained: set[str]) -> Complaint | None:
    """Give what an exit code says beyond the complaints; None when they explain it.

    :param explained: the faults that the text gave.
    """
    if code == 0:
        return None
    fault = _CODES.get(code)
    if fault is not None:
        return (
            None
            if explained & {fault, "DriverLibraryMismatch"}
            else Complaint(fault, f"nvidia-smi ended with exit code {code}")
        )
    if explained - {"GpuReadingFailed"}:
        return None
    said = f"nvidia-smi ended with exit code {code}, which its output does not explain"
    return Complaint("ProbeNonsense", said, recovery="none")


def harmless(line: str) -> bool:
    """Tell whether a line outside the output means nothing: a prompt, a date, a line that only goes with another."""
    return around(line, "nvidia-smi") or any(pattern.fullmatch(line[:LINE_LIMIT].strip()) for pattern in _HARMLESS)
