"""How the lab's ``nvidia-smi`` prints: list, table, details, CSV, and the refusal of a reset."""

from collections.abc import Sequence

import pynvml

from fleetwell.lab.nvidia_smi_fields import GPU_FIELDS, REMAPPED_ROW_FIELDS, Device, Getter

_RULE = "+" + "-" * 89 + "+"
_BORDER = "+" + "+".join("-" * width for width in (41, 24, 22)) + "+"
_HEADINGS = (
    ("GPU  Name                 Persistence-M", "Bus-Id          Disp.A", "Volatile Uncorr. ECC"),
    ("Fan  Temp   Perf          Pwr:Usage/Cap", "Memory-Usage", "GPU-Util  Compute M."),
    ("", "", "MIG M."),
)
_PROCESS_HEADINGS = (
    "Processes:",
    " GPU   GI   CI        PID   Type   Process name                              GPU Memory",
    "       ID   ID                                                               Usage",
)
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
    """Return the table that the tool prints when it is asked nothing, in the real one's columns."""
    version = pynvml.nvmlSystemGetDriverVersion()
    cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    title = f"NVIDIA-SMI {version:<22}  Driver Version: {version:<14}  CUDA Version: {cuda // 1000}.{cuda % 1000 // 10}"
    lines = [_RULE, f"| {title:<87} |", _BORDER.replace("+", "|", 1)[:-1] + "|"]
    lines += [_row(*heading) for heading in _HEADINGS]
    lines.append("|" + "+".join("=" * width for width in (41, 24, 22)) + "|")
    for one in devices:
        lines += [*_gpu(one), _BORDER]
    lines += ["", _RULE, *(f"| {heading:<87} |" for heading in _PROCESS_HEADINGS), "|" + "=" * 89 + "|"]
    running = [_process(one, pid, mib) for one in devices for pid, mib in _running(one)]
    return [*lines, *(running or [f"| {' No running processes found':<87} |"]), _RULE]


def _gpu(device: Device) -> list[str]:
    persistence = {"Enabled": "On", "Disabled": "Off"}.get(_value("persistence_mode", device), "ERR!")
    power = f"{_shown('power.draw', device, 'W')} / {_shown('power.limit', device, 'W'):>5}"
    heat = f"N/A   {_shown('temperature.gpu', device, 'C'):<4}  {_shown('pstate', device):<8}"
    memory = f"{_shown('memory.used', device, 'MiB'):>8} / {_shown('memory.total', device, 'MiB'):>8}"
    ecc = _shown("ecc.errors.uncorrected.volatile.total", device)
    mode = f"{_shown('utilization.gpu', device, '%')}      Default"
    name = f"{device.index:>3}  {_value('name', device)[:26]:<26}  {persistence:>4}"
    return [
        _row(f"{name:<39}", f"{_value('pci.bus_id', device)} Off", ecc),
        _row(f"{heat}{power:>18}", memory, mode),
        _row("", "", _shown("mig.mode.current", device)),
    ]


def _row(left: str, middle: str, right: str) -> str:
    return f"| {left:<39} | {middle:>22} | {right:>20} |"


def _shown(name: str, device: Device, unit: str = "") -> str:
    """Return a value as the table shows it: whole numbers, and ``ERR!`` for what could not be read."""
    value = _value(name, device)
    if value == "[N/A]":
        return "N/A"
    if value.startswith("["):
        return "ERR!"
    return f"{value.partition('.')[0]}{unit}"


def _process(device: Device, pid: int, mib: int) -> str:
    row = f" {device.index:>3}   N/A  N/A {pid:>10}      C   {'python3':<38} {mib:>7}MiB"
    return f"| {row:<87} |"


def _running(device: Device) -> list[tuple[int, int]]:
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(device.handle)
    except pynvml.NVMLError:
        return []
    return [(one.pid, one.usedGpuMemory >> 20) for one in found]


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
        lines += [*_processes(one), ""]
    return lines


def _processes(device: Device) -> list[str]:
    """Return the list of processes, which ends a GPU's part of the long form."""
    try:
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(device.handle)
    except pynvml.NVMLError:
        return [f"    {'Processes':<38}: Unknown Error"]
    if not running:
        return [f"    {'Processes':<38}: None"]
    lines = ["    Processes"]
    for one in running:
        lines += [f"        {'Process ID':<34}: {one.pid}", f"            {'Type':<30}: C"]
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
