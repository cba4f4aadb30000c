"""What a node must have, and what its machine was ever seen to have.

GPUs: what the operator says, else the instance type's table, else the most that were seen on this *machine*.
Interfaces: what was asked for, else the most that were seen; the table only bounds them, since a node may have been
launched with fewer. Never a label or an allocatable count that the driver stack writes: they shrink with the fault.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import structlog

from fleetwell.probes.protocol import InventorySeen

log = structlog.get_logger(__name__)


class TypeCounts(msgspec.Struct, frozen=True):
    """What the table says of an instance type."""

    gpus: int
    efa: int = 0
    """The most EFA interfaces that it can have."""


class Expected(msgspec.Struct, frozen=True):
    """What the node must have; None where nothing tells it."""

    gpus: int | None = None
    nics: int | None = None


class MachineMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen on one machine; kept on the node's disk, and worth nothing on another machine."""

    serial: str
    gpus: dict[str, str] = {}
    """UUID → PCI address."""
    nics: tuple[str, ...] = ()
    most_gpus: int = 0
    most_nics: int = 0
    answered: tuple[str, ...] = ()
    """Probes that have answered here: when they fall silent, that is a fault and not a machine without them."""


@functools.cache
def instance_types() -> Mapping[str, TypeCounts]:
    """Read the table of instance types."""
    text = (importlib.resources.files("fleetwell.probes") / "data" / "instance_types.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, TypeCounts])


def expected(said: Expected, instance_type: str, memory: MachineMemory) -> Expected:
    """Tell what the node must have.

    :param said: what the operator said.
    """
    row = instance_types().get(instance_type)
    gpus = said.gpus
    if gpus is None:
        gpus = row.gpus if row is not None else memory.most_gpus or None
    nics = said.nics
    if nics is None:
        nics = memory.most_nics or None
        if nics is not None and row is not None and row.efa:
            nics = min(nics, row.efa)
    return Expected(gpus=gpus, nics=nics)


def remember(memory: MachineMemory, seen: InventorySeen, probe: str, must: Expected) -> MachineMemory:
    """Add what one look saw. Hardware that was exchanged is forgotten once the count is complete without it."""
    gpus = {gpu.uuid: gpu.pci for gpu in seen.gpus if gpu.uuid} if probe == "nvml" else {}
    nics = tuple(nic.name for nic in seen.nics)
    complete = bool(gpus) and len(gpus) >= max(memory.most_gpus, must.gpus or 0)
    return msgspec.structs.replace(
        memory,
        gpus=gpus if complete else memory.gpus | gpus,
        nics=nics if len(nics) >= max(memory.most_nics, 1) else memory.nics,
        most_gpus=max(memory.most_gpus, len(gpus)),
        most_nics=max(memory.most_nics, len(nics)),
        answered=tuple(sorted({*memory.answered, probe})),
    )


def parse_expect(texts: Iterable[str]) -> Expected:
    """Read what an operator says: ``gpus=8,efa=32``.

    :raises ValueError: it has another form.
    """
    counts: dict[str, int] = {}
    for part in ",".join(texts).split(","):
        key, _, number = part.strip().partition("=")
        if not part.strip():
            continue
        if key not in {"gpus", "efa"} or not number.isdigit():
            raise ValueError(f"{part.strip()!r} is not an expectation: write gpus=8, efa=32, or both with a comma")
        counts[key] = int(number)
    return Expected(gpus=counts.get("gpus"), nics=counts.get("efa"))


class MemoryFile:
    """Keeps a :class:`MachineMemory` in the agent's state folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    def read(self, serial: str) -> MachineMemory:
        """Give what is known of this machine; what was written on another one counts for nothing."""
        try:
            known = msgspec.json.decode(self._path.read_bytes(), type=MachineMemory)
        except FileNotFoundError:
            return MachineMemory(serial=serial)
        except (OSError, msgspec.DecodeError) as error:
            log.warning(
                "what was seen on this machine cannot be read; starting anew", path=str(self._path), why=str(error)
            )
            return MachineMemory(serial=serial)
        return known if known.serial == serial else MachineMemory(serial=serial)

    def write(self, memory: MachineMemory) -> None:
        """Write it if it has changed; a disk that cannot be written costs only the memory of it."""
        encoded = msgspec.json.encode(memory)
        if encoded == self._written:
            return
        new = self._path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(encoded)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            log.warning("what was seen on this machine cannot be written", path=str(self._path), why=str(error))
            return
        self._written = encoded
