"""A virtual node's ``nvidia-smi``: the tool's common questions answered through the mock NVML with the real bindings.

So it hangs, dies and fails when the driver does. Texts and exit codes are the real tool's, since they are what is to
be read; a GPU that is lost does not stop the others' lines, and a tool that found nothing does not always say so by
its exit code.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pynvml

from fleetwell.lab import nvidia_smi_text
from fleetwell.lab.hardware import ROOT_VARIABLE, GpuInUseError, Hardware, HardwareError
from fleetwell.lab.nvidia_smi_fields import COMPUTE_APP_FIELDS, GPU_FIELDS, REMAPPED_ROW_FIELDS, Device, Getter

EXIT_BAD_ARGUMENT = 2
EXIT_NOT_FOUND = 6
EXIT_DRIVER_NOT_LOADED = 9
EXIT_LOST = 15
EXIT_VERSION_MISMATCH = 18
EXIT_OTHER = 255


class SmiError(Exception):
    """The tool ends here, with a text on its standard output and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


@dataclass
class Arguments:
    """What was asked on the command line."""

    action: str = "table"
    fields: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    persistence: bool | None = None


_QUERIES = {
    "--query-gpu": GPU_FIELDS,
    "--query-remapped-rows": REMAPPED_ROW_FIELDS,
    "--query-compute-apps": COMPUTE_APP_FIELDS,
}
_FLAGS = {"-L": "list", "--list-gpus": "list", "-q": "query", "--query": "query", "-r": "reset", "--gpu-reset": "reset"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; returns its exit code."""
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        if arguments.action in {"reset", "persistence"}:
            return _change(arguments)
        return _ask(arguments)
    except SmiError as error:
        _say(error.text)
        return error.code


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line; raises SmiError with the real tool's complaint."""
    arguments = Arguments()
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--") else [word])]
    rest = iter(words)
    for word in rest:
        if word in _FLAGS:
            arguments.action = _FLAGS[word]
        elif word in _QUERIES:
            arguments.action, arguments.fields = word, _split(next(rest, ""))
            for name in arguments.fields:
                if name not in _QUERIES[word]:
                    raise SmiError(f'Field "{name}" is not a valid field to query.\n', EXIT_BAD_ARGUMENT)
        elif word == "--format":
            arguments.formats = _split(next(rest, ""))
        elif word in {"-i", "--id"}:
            arguments.ids = _split(next(rest, ""))
        elif word in {"-pm", "--persistence-mode"}:
            arguments.action, arguments.persistence = "persistence", next(rest, "") in {"1", "ENABLED"}
        else:
            text = f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help. ({word})"
            raise SmiError(text, EXIT_BAD_ARGUMENT)
    if arguments.fields and "csv" not in arguments.formats:
        raise SmiError("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n", EXIT_BAD_ARGUMENT)
    return arguments


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _split(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _ask(arguments: Arguments) -> int:
    _initialize()
    count = pynvml.nvmlDeviceGetCount()
    if count == 0:
        raise SmiError("No devices were found", EXIT_NOT_FOUND)
    wanted = range(count) if not arguments.ids else [_index(name, count) for name in arguments.ids]
    devices: list[Device] = []
    lost: list[str] = []
    code = 0
    for index in wanted:
        try:
            devices.append(Device(index, pynvml.nvmlDeviceGetHandleByIndex(index)))
        except pynvml.NVMLError as error:
            lost.append(_no_handle(index, error))
            code = EXIT_LOST if error.value == pynvml.NVML_ERROR_GPU_IS_LOST else EXIT_OTHER
    for line in _answer(arguments, devices):
        _say(line)
    for line in lost:
        _say(line)
    pynvml.nvmlShutdown()
    return code


def _answer(arguments: Arguments, devices: list[Device]) -> list[str]:
    simple: dict[str, Callable[[list[Device]], list[str]]] = {
        "list": nvidia_smi_text.listing,
        "query": nvidia_smi_text.details,
        "table": nvidia_smi_text.table,
    }
    if arguments.action in simple:
        return simple[arguments.action](devices)
    table: dict[str, Getter] = _QUERIES[arguments.action]
    return nvidia_smi_text.csv(arguments.fields, arguments.formats, table, devices)


def _initialize() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in {pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}:
            text = (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
                "latest NVIDIA driver is installed and running.\n"
            )
            raise SmiError(text, EXIT_DRIVER_NOT_LOADED) from error
        if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            text = "Failed to initialize NVML: Driver/library version mismatch\n"
            raise SmiError(text, EXIT_VERSION_MISMATCH) from error
        raise SmiError(f"Failed to initialize NVML: {error}\n", EXIT_OTHER) from error


def _no_handle(index: int, error: pynvml.NVMLError) -> str:
    address = _hardware().machine.gpu.pci[index]
    end = "  Reboot the system to recover this GPU" if error.value == pynvml.NVML_ERROR_GPU_IS_LOST else ""
    text = "GPU is lost." if end else "Unknown Error"
    return f"Unable to determine the device handle for GPU{index}: {address}: {text}{end}"


def _index(name: str, count: int) -> int:
    if name.isdecimal() and int(name) < count:
        return int(name)
    state = _hardware().state
    for index, gpu in enumerate(state.gpus):
        address = state.machine.gpu.pci[index]
        if name.lower() in {gpu.uuid.lower(), address, f"0000{address}"}:
            return index
    raise SmiError("No devices were found", EXIT_NOT_FOUND)


def _change(arguments: Arguments) -> int:
    _initialize()
    count = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    hardware = _hardware()
    for name in arguments.ids or [str(index) for index in range(count)]:
        index = _index(name, count)
        address = f"0000{hardware.machine.gpu.pci[index].upper()}"
        if arguments.action == "persistence":
            with hardware.update() as state:
                state.gpus[index].lasting.persistence = bool(arguments.persistence)
            _say(f"{'En' if arguments.persistence else 'Dis'}abled persistence mode for GPU {address}.")
            continue
        try:
            hardware.reset_gpu(index)
        except GpuInUseError as error:
            raise SmiError(nvidia_smi_text.in_use(address), EXIT_OTHER) from error
        except HardwareError as error:
            raise SmiError(f"GPU {address} is lost.  Reboot the system to recover this GPU\n", EXIT_LOST) from error
        _say(f"GPU {address} was successfully reset.")
    _say("All done.")
    return 0


def _hardware() -> Hardware:
    return Hardware(Path(os.environ[ROOT_VARIABLE]))


if __name__ == "__main__":
    sys.exit(main())
