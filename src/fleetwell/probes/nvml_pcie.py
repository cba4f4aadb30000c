"""What NVML says of a GPU's PCIe link: generation, lanes, and how often packets are sent again.

An idle GPU lowers the generation by itself, and a slot may rightly be narrow; then it is so for all equal GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleetwell.probes.nvml_binding import CANNOT_SAY, pynvml
from fleetwell.probes.nvml_limits import limits

if TYPE_CHECKING:
    from fleetwell.probes.nvml_binding import Gpu
    from fleetwell.probes.nvml_samples import Samples
    from fleetwell.probes.report import Report


class Link(NamedTuple):
    """One GPU's link, as it is now and at its best."""

    generation: int
    most_generation: int
    lanes: int
    most_lanes: int
    full_power: bool
    busy: bool


def link(gpu: Gpu) -> Link:
    """Read it.

    :raises pynvml.NVMLError: this model or driver does not tell.
    """
    handle = gpu.handle
    return Link(
        generation=int(pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        most_generation=int(pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        lanes=int(pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        most_lanes=int(pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        full_power=pynvml.nvmlDeviceGetPerformanceState(handle) == pynvml.NVML_PSTATE_0,
        busy=_busy(gpu),
    )


def _busy(gpu: Gpu) -> bool:
    try:
        return int(pynvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu) > 0
    except pynvml.NVMLError as error:
        if error.value not in CANNOT_SAY:
            raise
        return False  # Not told of a divided GPU.


def compare(seen: Report, links: dict[Gpu, Link]) -> None:
    """Judge generations and widths: against what the link can do under load, else against equal GPUs beside it."""
    for gpu, mine in links.items():
        equal = [other for beside, other in links.items() if beside.name == gpu.name]
        widest = max(other.lanes for other in equal)
        if mine.lanes < mine.most_lanes and mine.lanes < widest:
            said = f"PCIe width x{mine.lanes} of x{mine.most_lanes}; an equal GPU beside it has x{widest}"
            seen.fault("PcieDegraded", gpu.component, said)
        elif mine.lanes < mine.most_lanes:
            said = f"PCIe width x{mine.lanes} of x{mine.most_lanes} on all equal GPUs"
            seen.blind(f"nvml: {said}; the machine may be built so")
        if not mine.full_power or mine.generation >= mine.most_generation:
            continue
        fastest = max(other.generation for other in equal if other.full_power)
        if mine.busy or mine.generation < fastest:
            why = "under load" if mine.busy else f"while an equal GPU beside it is at {fastest}"
            said = f"PCIe generation {mine.generation} {why}; GPU and slot can do {mine.most_generation}"
            seen.fault("PcieDegraded", gpu.component, said)


def replays(gpu: Gpu, mine: Link, samples: Samples) -> None:
    """Compare the packets that were sent again with the look before.

    :raises pynvml.NVMLError: this model or driver does not count them.
    """
    count = int(pynvml.nvmlDeviceGetPcieReplayCounter(gpu.handle))
    table = limits().replays
    a_minute = table.get(mine.generation, table[max(table)]) * max(mine.lanes, 1)
    # Less than one replay in a sample is no rate: at one a sample the first would be a fault.
    rose = samples.rise(gpu.uuid, "pcie", count, per_second=a_minute / 60, burst=1)
    if rose is not None:
        said = f"{rose} PCIe replays in {samples.gap:.0f} s; {a_minute:g} a minute may be at generation"
        where = f"{said} {mine.generation} with {mine.lanes} lanes"
        samples.said.append(["PcieReplays", gpu.component, where])
