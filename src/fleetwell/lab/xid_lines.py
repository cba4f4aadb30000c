"""Lines as NVIDIA's driver writes them into the kernel log, in each of the forms that are seen in the field."""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from fleetwell.lab.nvml_state import RecoveryAction

_ACTION_NAMES = {
    RecoveryAction.NONE: "None",
    RecoveryAction.GPU_RESET: "GPU Reset Required",
    RecoveryAction.NODE_REBOOT: "Node Reboot Required",
    RecoveryAction.DRAIN_P2P: "Drain P2P",
    RecoveryAction.DRAIN_AND_RESET: "Drain and Reset",
}


class Form(StrEnum):
    """The shapes of the head of an Xid line."""

    STANDARD = "standard"  # (PCI:0000:53:00): 79, …
    FUNCTION = "function"  # (PCI:0000:53:00.0): 79, …
    LEGACY = "legacy"  # (0000:53:00): 79, …
    BARE = "bare"  # (PCI:0000:53:00): 79


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    process: str
    text: str


@dataclass(frozen=True)
class Xid:
    """One Xid event before it is a line. ``index`` and ``pci`` name the GPU; the rest has usual values."""

    number: int
    pci: str
    index: int = 0
    pid: int = 4242
    process: str = "python3"
    link: int = 14
    channel: int = 8
    action: RecoveryAction = RecoveryAction.NODE_REBOOT
    text: str | None = None
    form: Form = Form.STANDARD
    gpu_instance: int | None = None
    compute_instance: int | None = None
    caused_by: int | None = None

    def line(self) -> str:
        """Return the line as the driver writes it."""
        head = f"NVRM: Xid ({self._where()}): {self.number}"
        if self.form is Form.BARE:
            return head
        known = _texts().get(self.number, _Text(process="job", text="Ch {channel:08x}"))
        text = self.text or known.text.format(
            link=self.link,
            channel=self.channel,
            index=self.index,
            action=self.action,
            action_name=_ACTION_NAMES.get(self.action, "None"),
        )
        owner = {
            "job": f"pid={self.pid}, name={self.process}, ",
            "unknown": "pid='<unknown>', name=<unknown>, ",
            "none": "",
        }[known.process]
        cause = "" if self.caused_by is None else f" caused by previous Xid {self.caused_by}"
        return f"{head}, {owner}{text}{cause}"

    def _where(self) -> str:
        address = self.pci if self.form is Form.FUNCTION else self.pci.rpartition(".")[0]
        place = address if self.form is Form.LEGACY else f"PCI:{address}"
        if self.gpu_instance is not None:
            place += f" GPU-I:{self.gpu_instance:02d}"
            if self.compute_instance is not None:
                place += f" GPU-CI:{self.compute_instance:02d}"
        return place


@cache
def _texts() -> dict[int, _Text]:
    content = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return {int(number): msgspec.convert(entry, _Text) for number, entry in tomllib.loads(content).items()}
