"""One fault on its way into one node: its parameters, as a command line or a test gives them, read and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetwell.lab.hardware import Hardware
from fleetwell.lab.kernel_log import Line
from fleetwell.lab.nvml_state import GpuState, NodeState, RecoveryAction, Where
from fleetwell.lab.xid_lines import Xid


class FaultError(ValueError):
    """A fault cannot be injected as asked; nothing was changed."""


@dataclass
class Injection:
    """One fault on its way into one node: the parameters as given, and the kernel lines as they are written."""

    hardware: Hardware
    gpu: int
    parameters: Mapping[str, str | int | bool]
    number: int
    lines: list[Line] = field(default_factory=list)

    def integer(self, name: str, default: int) -> int:
        """Return a parameter as a number."""
        value = self.parameters.get(name, default)
        try:
            return int(value)
        except ValueError:
            message = f"{name} must be a number, not {value!r}; nothing was changed"
            raise FaultError(message) from None

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a parameter as yes or no."""
        value = str(self.parameters.get(name, default)).lower()
        if value not in {"true", "false"}:
            message = f"{name} must be true or false, not {value!r}; nothing was changed"
            raise FaultError(message)
        return value == "true"

    def word(self, name: str, default: str) -> str:
        """Return a parameter as text."""
        return str(self.parameters.get(name, default))

    def where(self) -> Where:
        """Return from which NVML call on the driver misbehaves."""
        value = self.word("where", Where.ANY)
        if value not in {Where.INIT, Where.ANY}:
            message = f"where must be init or any, not {value!r}; nothing was changed"
            raise FaultError(message)
        return Where(value)

    @property
    def pci(self) -> str:
        """PCI address of the GPU."""
        return self.hardware.machine.gpu.pci[self.gpu]

    def state_of_gpu(self, state: NodeState) -> GpuState:
        """Return the GPU in a state that is being changed."""
        return Hardware.gpu(state, self.gpu)

    def xid(self, number: int, action: RecoveryAction = RecoveryAction.NONE) -> Line:
        """Return an Xid line of this GPU, blaming the process that was named, else the one that holds it."""
        holders = self.hardware.state.gpus[self.gpu].volatile.holders
        return Line(
            Xid(
                number=number,
                pci=self.pci,
                index=self.gpu,
                pid=self.integer("pid", holders[0].pid if holders else 4242),
                process=self.word("process", "python3"),
                link=self.integer("link", 14),
                action=action,
            ).line()
        )

    def say(self, *lines: Line) -> None:
        """Write kernel lines and remember them."""
        self.hardware.write_kernel_lines(lines)
        self.lines.extend(lines)
