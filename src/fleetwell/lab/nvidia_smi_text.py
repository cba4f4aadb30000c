"""How the lab's ``nvidia-smi`` prints: list, table, details, CSV, and the refusal of a reset."""

from collections.abc import Sequence

import pynvml

from fleetwell.lab.nvidia_smi_fields import GPU_FIELDS, REMAPPED_ROW_FIELDS, Device, Getter

_RULE = "+" + "-" * 89 + "+"
_DETAILS: tuple[tuple[str, str], ...] = (
    ("Product Name", "name"),
    ("Persistence Mode", "persistence_mode"),
    ("MIG Mode Current", "mig.mode.current"),
    ("Serial Number", "serial"),
    ("GPU UUID", "uuid"),
    ("VBIOS Version", "vbios_version"),
    ("GPU Recovery Action", "gpu_recovery_action"),
    ("Fabric State", "fabric.state"),
    ("FB Memory Total", "memory.total"),
    ("FB Memory Used", "memory.used"),
    ("Volatile ECC Correctable", "ecc.errors.corrected.volatile.total"),
    ("Volatile ECC Uncorrectable", "ecc.errors.uncorrected.volatile.total"),
    ("Aggregate ECC Correctable", "ecc.errors.corrected.aggregate.total"),
    ("Aggregate ECC Uncorrectable", "ecc.errors.uncorrected.aggregate.total"),
    ("GPU Current Temp", "temperature.gpu"),
    ("GPU T.Limit Temp", "temperature.gpu.tlimit"),
    ("Clocks Event Reasons", "clocks_event_reasons.active"),
    ("Power Draw", "power.draw"),
)
_REMAPPED_ROWS: tuple[tuple[str, str], ...] = (
    ("Correctable Error", "remapped_rows.correctable"),
    ("Uncorrectable Error", "remapped_rows.uncorrectable"),
    ("Pending", "remapped_rows.pending"),
    ("Remapping Failure Occurred", "remapped_rows.failure"),
)


def listing(devices: list[Device]) -> list[str]:
    """Return one line a GPU, as -L does."""
    return [f"GPU {one.index}: {_value('name', one)} (UUID: {_value('uuid', one)})" for one in devices]


def table(devices: list[Device]) -> list[str]:
    """Return the table that the tool prints when it is asked nothing."""
    version = pynvml.nvmlSystemGetDriverVersion()
    cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    title = f"NVIDIA-SMI {version}   Driver Version: {version}   CUDA Version: {cuda // 1000}.{cuda % 1000 // 10}"
    lines = [_RULE, f"| {title:<87} |", _RULE]
    for one in devices:
        name = f"{one.index:>3}  {_value('name', one):<28} {_value('pci.bus_id', one):<18}"
        memory = f"{_value('memory.used', one)}MiB / {_value('memory.total', one)}MiB"
        heat = f"{_value('temperature.gpu', one)}C  {_value('power.draw', one)}W"
        ecc = _value("ecc.errors.uncorrected.volatile.total", one)
        lines += [f"| {name:<63} ECC {ecc:<19} |", f"|      {heat:<26} {memory:<55} |", _RULE]
    return lines


def details(devices: list[Device]) -> list[str]:
    """Return the long form, as -q does."""
    lines = ["==============NVSMI LOG==============", ""]
    lines += [f"{'Driver Version':<42}: {pynvml.nvmlSystemGetDriverVersion()}"]
    lines += [f"{'Attached GPUs':<42}: {pynvml.nvmlDeviceGetCount()}"]
    for one in devices:
        lines.append(f"GPU {_value('pci.bus_id', one)}")
        lines += [f"    {label:<38}: {_with_unit(GPU_FIELDS[name], one)}" for label, name in _DETAILS]
        lines.append("    Remapped Rows")
        for label, name in _REMAPPED_ROWS:
            lines.append(f"        {label:<34}: {_with_unit(REMAPPED_ROW_FIELDS[name], one)}")
        lines.append("")
    return lines


def csv(names: Sequence[str], formats: Sequence[str], columns: dict[str, Getter], devices: list[Device]) -> list[str]:
    """Return the rows of a query; ``formats`` may hold noheader and nounits."""
    units = "nounits" not in formats
    lines = [] if "noheader" in formats else [", ".join(_heading(name, columns[name], units=units) for name in names)]
    for one in devices:
        cells = [
            [_dressed(value, columns[name].unit if units else "") for value in columns[name].values(one)]
            for name in names
        ]
        lines += [", ".join(row) for row in zip(*cells, strict=True)]
    return lines


def in_use(address: str) -> str:
    """Return the refusal to reset a GPU that somebody holds."""
    return (
        f"The following GPUs could not be reset:\n  GPU {address}: In use by another client\n\n"
        "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "
        "graphics application such as an X server, or a monitoring application such as another instance of "
        "nvidia-smi). Please first kill all processes using this device and all compute applications running in the "
        "system.\n"
    )


def _value(name: str, device: Device) -> str:
    return next(GPU_FIELDS[name].values(device))


def _with_unit(getter: Getter, device: Device) -> str:
    return _dressed(next(getter.values(device)), getter.unit)


def _dressed(value: str, unit: str) -> str:
    return f"{value} {unit}" if unit and not value.startswith("[") else value


def _heading(name: str, getter: Getter, *, units: bool) -> str:
    return f"{name} [{getter.unit}]" if units and getter.unit else name
