"""What a node must have, and what its machine was ever seen to have.

The policy that governs the node is the cluster's word and comes first, then what the operator says to this agent by
``--expect``: both are *said*, each count by itself (:func:`overruled`). GPUs: what is said, else the instance type's
table, else the most that were seen on this *machine*. Interfaces: what is said, else what was requested at launch (the
NodePool or the launch template writes it on the Node), else the most that were seen; the table only bounds those, since
a node may have been launched with fewer.
Never a label or an allocatable count that the driver stack writes: they shrink with the fault.
"""

from __future__ import annotations

import functools
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
    infiniband_gbps: float = 0.0
    """Rate of each of its InfiniBand ports."""


class Expected(msgspec.Struct, frozen=True):
    """What the node must have; None where nothing tells it."""

    gpus: int | None = None
    nics: int | None = None
    """EFA interfaces."""
    infiniband: int | None = None
    """InfiniBand and RoCE adapters: the rails, where somebody said it; all of them, where it is what was seen."""
    efa_gbps: float | None = None
    infiniband_gbps: float | None = None
    infiniband_up: int | None = None
    """How many adapters must have a port that is up: a machine may rightly have some without a cable."""

    @property
    def adapters(self) -> int | None:
        """Interfaces and adapters together."""
        known = [count for count in (self.nics, self.infiniband) if count is not None]
        return sum(known) if known else None


_NOTHING_ASKED = Expected()
REQUESTED_EFA = "fleetwell.io/requested-efa"
REQUESTED_INFINIBAND = "fleetwell.io/requested-infiniband"
"""Labels or annotations of a Node that say what it was launched with; set in the NodePool's or launch template's
metadata, where the request for the interfaces itself stands."""


class MachineMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen on one machine; kept on the node's disk, and worth nothing on another machine."""

    serial: str
    gpus: dict[str, str] = {}
    """UUID → PCI address."""
    nics: dict[str, str] = {}
    """Name → PCI address of EFA interfaces."""
    infiniband: dict[str, str] = {}
    """The same of InfiniBand and RoCE adapters."""
    most_gpus: int = 0
    most_nics: int = 0
    most_infiniband: int = 0
    answered: tuple[str, ...] = ()
    """Probes that have answered here: when they fall silent, that is a fault and not a machine without them."""


@functools.cache
def instance_types() -> Mapping[str, TypeCounts]:
    """Read the table of instance types."""
    text = Path(__file__).with_name("data").joinpath("instance_types.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, TypeCounts])


def expected(said: Expected, instance_type: str, memory: MachineMemory, asked: Expected = _NOTHING_ASKED) -> Expected:
    """Tell what the node must have.

    :param said: what the policy or the operator said.
    :param asked: what was requested when the machine was launched (see :func:`requested`).
    """
    row = instance_types().get(instance_type)
    gpus = said.gpus
    if gpus is None:
        gpus = row.gpus if row is not None else memory.most_gpus or None
    nics = said.nics
    if nics is None:
        nics = (memory.most_nics or None) if asked.nics is None else asked.nics
        if nics is not None and row is not None and row.efa:
            nics = min(nics, row.efa)
    up = said.infiniband if asked.infiniband is None or said.infiniband is not None else asked.infiniband
    return Expected(
        gpus=gpus,
        nics=nics,
        infiniband=(memory.most_infiniband or None) if up is None else up,
        efa_gbps=said.efa_gbps,
        infiniband_gbps=said.infiniband_gbps or (row.infiniband_gbps if row is not None else None) or None,
        infiniband_up=up,
    )


def overruled(said: Expected, policy: Expected) -> Expected:
    """Put the policy's word before what the operator said; each count by itself, since a policy may name only some."""
    named = {name: getattr(policy, name) for name in policy.__struct_fields__}
    return msgspec.structs.replace(said, **{name: count for name, count in named.items() if count is not None})


def told(must: Expected, memory: MachineMemory) -> dict[str, object]:
    """Put what a machine must have, and was seen to have, into the words in which children are told it."""
    return {
        "serial": memory.serial,
        "expected": must.gpus,
        "known": memory.gpus,
        "expected_nics": must.nics,
        "known_nics": memory.nics,
        "efa_gbps": must.efa_gbps,
        "expected_infiniband": must.infiniband,
        "known_infiniband": memory.infiniband,
        "infiniband_gbps": must.infiniband_gbps,
        "infiniband_up": must.infiniband_up,
    }


def requested(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Expected:
    """Read what a Node says that it was launched with; what is no number says nothing."""

    def number(name: str) -> int | None:
        said = annotations.get(name) or labels.get(name) or ""
        return int(said) if said.isascii() and said.isdigit() and len(said) <= 4 else None

    return Expected(nics=number(REQUESTED_EFA), infiniband=number(REQUESTED_INFINIBAND))


def remember(memory: MachineMemory, seen: InventorySeen, probe: str, must: Expected) -> MachineMemory:
    """Add what one look saw. Hardware that was exchanged is forgotten once the count is complete without it."""
    gpus = {gpu.uuid: gpu.pci for gpu in seen.gpus if gpu.uuid} if probe == "nvml" else {}
    nics = {nic.name: nic.pci for nic in seen.nics} if probe == "efa" else {}
    others = {nic.name: nic.pci for nic in seen.nics} if probe == "infiniband" else {}
    complete = bool(gpus) and len(gpus) >= max(memory.most_gpus, must.gpus or 0)
    return msgspec.structs.replace(
        memory,
        gpus=gpus if complete else memory.gpus | gpus,
        nics=nics if len(nics) >= max(memory.most_nics, 1) else memory.nics,
        most_gpus=max(memory.most_gpus, len(gpus)),
        most_nics=max(memory.most_nics, len(nics)),
        infiniband=others if len(others) >= max(memory.most_infiniband, 1) else memory.infiniband,
        most_infiniband=max(memory.most_infiniband, len(others)),
        answered=tuple(sorted({*memory.answered, probe})),
    )


def parse_expect(texts: Iterable[str]) -> Expected:
    """Read what an operator says: ``gpus=8,efa=32``, ``ib=8``, and rates of each port: ``efa-gbps=100,ib-gbps=400``.

    :raises ValueError: it has another form, or says two things of one count.
    """
    counts: dict[str, int] = {}
    for part in map(str.strip, ",".join(texts).split(",")):
        if not part:
            continue
        key, _, number = map(str.strip, part.partition("="))
        if key not in _EXPECTATIONS or not (number.isascii() and number.isdigit() and len(number) <= _DIGITS):
            raise ValueError(
                f"{part!r} is not an expectation: write {', '.join(f'{name}=N' for name in _EXPECTATIONS)}, "
                "several with commas between them"
            )
        if counts.setdefault(_EXPECTATIONS[key], int(number)) != int(number):
            raise ValueError(f"{part!r} contradicts what was said of {key} before it: say it once")
    return msgspec.convert(counts, Expected)


_DIGITS = 5
"""No machine has 100,000 of anything, and no port 100,000 Gbit/s."""
_EXPECTATIONS = {
    "gpus": "gpus",
    "efa": "nics",
    "ib": "infiniband",
    "efa-gbps": "efa_gbps",
    "ib-gbps": "infiniband_gbps",
}


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
