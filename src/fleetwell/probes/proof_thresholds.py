"""What the proof does at each level and what a device must reach: ``data/proof_thresholds.toml``, read and typed."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from typing import Final

import msgspec

CPU: Final = "cpu"
"""Name of the model that stands for a host's processor."""
GENERIC: Final = ("float16", "float32")
"""Number formats that are checked on a board without figures: every GPU with matrix units has them."""


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is done; the data file explains each field."""

    memory_share: float
    patterns: tuple[str, ...]
    passes: int
    size: int
    dtypes: tuple[str, ...]
    products: int
    seconds: float
    seeds: int
    copy_mib: int
    copies: int
    collective_mib: int
    collective_rounds: int
    diagnostics: tuple[int, ...]

    @property
    def sustained(self) -> bool:
        """Whether there is a load long enough to judge speed, heat and clocks."""
        return self.seconds > 0


class Diagnostic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of DCGM's levels; the data file explains each field."""

    number: int
    seconds: float
    must: frozenset[str]
    may: frozenset[str]
    source: str


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Word ``i`` holds ``(i * times) ^ flip``, in 64 bits."""

    times: int = 0
    flip: int = 0


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Largest deviation of a product from its reference."""

    element: float
    total: float


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits that hold for every model."""

    idle_memory_mib: int
    half_share: float
    neighbour_share: float
    below_slowdown: float
    max_celsius: float
    samples: int


class Throttle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reason for lower clocks."""

    bit: int
    share: float


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a healthy board of a model reaches; 0 and an empty table: nothing is known."""

    names: tuple[str, ...] = ()
    tflops: dict[str, float] = {}
    compute_floor: float = 0.0
    host_gbps: float = 0.0
    peer_gbps: float = 0.0
    collective_gbps: float = 0.0
    collective_gpus: int = 0
    collective_floor: float = 0.0
    clock_mhz: float = 0.0
    source: str = ""

    def floor(self, dtype: str) -> float:
        """Give the TFLOP/s that a sustained product must reach; 0 where no figure is known."""
        return self.tflops.get(dtype, 0.0) * self.compute_floor

    def collective(self, devices: int) -> float:
        """Give the bus bandwidth that an all-reduce over so many devices must reach, GB/s; 0 where none is known."""
        return self.collective_gbps * self.collective_floor if devices == self.collective_gpus else 0.0


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    levels: dict[str, Level]
    cpu_levels: dict[str, Level]
    diagnostics: tuple[Diagnostic, ...]
    """By rising number."""
    patterns: dict[str, Pattern]
    bounds: dict[str, Bound]
    limits: Limits
    throttle: dict[str, Throttle]
    models: dict[str, Model]

    def level(self, name: str, *, cpu: bool) -> Level:
        """Give what is done at a level."""
        return (self.cpu_levels if cpu else self.levels)[name]

    def diagnostic(self, number: int) -> Diagnostic | None:
        """Give one of DCGM's diagnostics; None for a number that DCGM does not have."""
        return next((one for one in self.diagnostics if one.number == number), None)

    def begins(self, test: str) -> int:
        """Give the lowest of DCGM's diagnostics that has a test; 1 for those of its many checks that have no name."""
        return next((one.number for one in self.diagnostics if test in one.must | one.may), 1)

    def diagnostics_of(self, level: Level) -> tuple[Diagnostic, ...]:
        """Give the diagnostics of which a level runs one, by rising number."""
        return tuple(one for one in self.diagnostics if one.number in level.diagnostics)

    def model(self, name: str) -> Model:
        """Give what is known of the board that NVML calls so; nothing where the file does not have it."""
        return next((model for model in self.models.values() if name in model.names), Model())

    def dtypes(self, level: Level, model: Model) -> tuple[str, ...]:
        """Give the number formats that a level checks on a board."""
        return level.dtypes or tuple(model.tflops) or GENERIC


@functools.cache
def thresholds() -> Thresholds:
    """Read the file."""
    text = (importlib.resources.files("fleetwell.probes") / "data" / "proof_thresholds.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Thresholds)
