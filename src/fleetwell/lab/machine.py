"""What a machine is made of: the description files under ``machines/``, and the reader of such a file.

A description says what the hardware *has*, never what is wrong with it, so one file serves any number of virtual nodes.
"""

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

_FOLDER = Path(__file__).with_name("machines")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
MAX_GPUS = 16  # as many as the mock NVML has room for (lab/nvml/state.h)
MAX_NVLINKS = 18


class MachineError(ValueError):
    """A machine description is missing or says something that no machine can be."""


class Architecture(StrEnum):
    """GPU generations that the lab knows."""

    ADA = "ada"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


@dataclass(frozen=True)
class GpuModel:
    """The GPUs of one machine: all alike, one PCI address each, in bus order (which is NVML's order)."""

    name: str
    architecture: Architecture
    memory_mib: int
    device_id: int
    subsystem_vendor_id: int
    subsystem_id: int
    nvlinks: int
    power_limit_w: int
    slowdown_c: int
    shutdown_c: int
    clock_max_mhz: int
    pcie_gen: int
    pcie_width: int
    mig: bool
    pci: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many GPUs the machine has."""
        return len(self.pci)


@dataclass(frozen=True)
class Switches:
    """NVSwitches that the host can see on its PCI bus."""

    device_id: int
    pci: tuple[str, ...]


@dataclass(frozen=True)
class Nic:
    """One RDMA interface; ``name`` is what the kernel calls it (rdmap79s0: PCI bus 0x4f, slot 0)."""

    name: str
    driver: str
    vendor_id: int
    device_id: int
    rate_gbps: int
    pci: str


@dataclass(frozen=True)
class Machine:
    """One instance type, as its description file says it."""

    instance_type: str
    gpu: GpuModel
    nvswitch: Switches
    nics: tuple[Nic, ...]
    driver_version: str
    cuda_version: str
    dmi_vendor: str

    @property
    def efa_count(self) -> int:
        """How many of the interfaces are EFA."""
        return sum(nic.driver == "efa" for nic in self.nics)


class _Dmi(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sys_vendor: str


class _NicGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    driver: str
    vendor_id: int
    device_id: int
    rate_gbps: int
    pci: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    instance_type: str
    driver_version: str
    cuda_version: str
    dmi: _Dmi
    gpu: GpuModel
    nvswitch: Switches | None = None
    nic: tuple[_NicGroup, ...] = ()


def names() -> list[str]:
    """Return the instance types that come with the lab."""
    return sorted(path.name.removesuffix(".toml") for path in _FOLDER.glob("*.toml"))


def load(name_or_path: str | Path) -> Machine:
    """Read a machine by instance type ("p5.48xlarge") or from a description file of your own.

    Raises MachineError, which names the file and what is wrong in it.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = _FOLDER / f"{name_or_path}.toml"
    if not path.is_file():
        message = (
            f"there is no machine description {path}.\n"
            f"hint: take one of {', '.join(names())}, or the path of a .toml file like those in {_FOLDER}"
        )
        raise MachineError(message)
    try:
        described = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
        message = f"the machine description {path} is not valid: {error}"
        raise MachineError(message) from error
    machine = Machine(
        instance_type=described.instance_type,
        gpu=described.gpu,
        nvswitch=described.nvswitch or Switches(device_id=0, pci=()),
        nics=tuple(_nic(group, address) for group in described.nic for address in group.pci),
        driver_version=described.driver_version,
        cuda_version=described.cuda_version,
        dmi_vendor=described.dmi.sys_vendor,
    )
    _check(machine, path)
    return machine


def _nic(group: _NicGroup, address: str) -> Nic:
    # systemd names an RDMA device by link layer, bus and slot: rdmap79s0 for EFA, ibp203s0 for InfiniBand.
    prefix = "rdmap" if group.driver == "efa" else "ibp"
    bus, slot = (int(part, 16) for part in address[:-2].split(":")[1:])
    return Nic(
        name=f"{prefix}{bus}s{slot}",
        driver=group.driver,
        vendor_id=group.vendor_id,
        device_id=group.device_id,
        rate_gbps=group.rate_gbps,
        pci=address,
    )


def _check(machine: Machine, path: Path) -> None:
    addresses = [*machine.gpu.pci, *machine.nvswitch.pci, *(nic.pci for nic in machine.nics)]
    malformed = [address for address in addresses if not _PCI_ADDRESS.fullmatch(address)]
    twice = sorted({address for address in addresses if addresses.count(address) > 1})
    wrong = ""
    if malformed:
        wrong = f"not PCI addresses (like 0000:53:00.0): {', '.join(malformed)}"
    elif twice:
        wrong = f"PCI addresses given twice: {', '.join(twice)}"
    elif not 1 <= machine.gpu.count <= MAX_GPUS:
        wrong = f"{machine.gpu.count} GPUs; the lab takes 1 to {MAX_GPUS}"
    elif list(machine.gpu.pci) != sorted(machine.gpu.pci):
        wrong = "the GPUs' PCI addresses are not in bus order, which is the order that NVML counts in"
    elif not 0 <= machine.gpu.nvlinks <= MAX_NVLINKS:
        wrong = f"{machine.gpu.nvlinks} NVLinks a GPU; the lab takes 0 to {MAX_NVLINKS}"
    if wrong:
        message = f"the machine description {path} is not valid: {wrong}"
        raise MachineError(message)
