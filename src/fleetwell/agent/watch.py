"""The children that look at this node's hardware: when they look, when they wait, and whether they still answer.

Two of them stand behind the node's conditions, NVML and sysfs. ``nvidia-smi`` and DCGM are second opinions where they
are installed: they cost more than everything else together, so they look seldom, and at once when they may add
something. A driver that hangs is not asked twice: a second caller would only be stuck beside the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.operands import Operands
from fleetwell.agent.settings import Settings, Timing
from fleetwell.agent.sources import ChildSource
from fleetwell.probes import SYSFS_PROBES
from fleetwell.probes.inventory import told


class Watch:
    """All sources that are children.

    :param monotonic: the clock by which they must answer.
    """

    def __init__(
        self, settings: Settings, assessment: Assessment, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._assessment = assessment
        self._monotonic = monotonic
        self._nvml = self._source("nvml", ("nvml",), settings.nvml)
        self.main = (self._nvml, self._source("sysfs", SYSFS_PROBES, settings.sysfs))
        """Those that stand behind conditions; they answer within seconds."""
        optional = (("nvidia_smi", settings.nvidia_smi), ("dcgm", settings.dcgm))
        self.others = tuple(self._source(name, (name,), timing) for name, timing in optional if timing is not None)
        """The second opinions."""
        self._on_gpus = (self._nvml, *self.others)
        self._nvml.on_failure = self._ask_others
        self.operands = Operands(assessment, self._on_gpus, settings.operand_pause, monotonic=monotonic)

    def _source(self, module: str, probes: tuple[str, ...], timing: Timing) -> ChildSource:
        return ChildSource(module, probes, timing, self._asked, self._assessment, monotonic=self._monotonic)

    @property
    def all(self) -> tuple[ChildSource, ...]:
        """Every source."""
        return (*self.main, *self.others)

    def look_now(self) -> None:
        """Have everybody look, since something has happened."""
        for source in self.main:
            source.trigger()
        self._ask_others()

    def _ask_others(self) -> None:
        for source in self.others:
            if not self._nvml.hangs:
                source.trigger()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep everything away from the GPUs while an operation runs."""
        with ExitStack() as pauses:
            for source in self._on_gpus:
                pauses.enter_context(source.paused())
            yield

    def looked(self) -> bool:
        """Tell whether those that stand behind conditions have looked since the agent began."""
        return all(source.first_look.is_set() for source in self.main)

    async def first_looks(self) -> None:
        """Wait for that."""
        for source in self.main:
            await source.first_look.wait()

    def alive(self) -> bool:
        """Tell whether their looks are resolved in time: an agent that only turns its loop is not alive."""
        now, times = self._monotonic(), self._settings.silent_after
        return all(
            source.last_resolved is not None and now - source.last_resolved <= times * source.patience
            for source in self.main
        )

    def _asked(self) -> dict[str, object]:
        state_dir = self._settings.state_dir
        return {
            "host_root": str(self._settings.host_root),
            "nvml_memory": str(state_dir / "nvml.json"),
            "nic_memory": str(state_dir / "nics.json"),
            **told(self._assessment.expected, self._assessment.memory),
        }
