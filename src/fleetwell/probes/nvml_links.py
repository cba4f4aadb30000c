"""What NVML says of the NVLinks: active or not, and how fast their error counters rise.

The counters are of a GPU's whole life or since its reset, so a number by itself says nothing (DCGM's were taken for
faults by others); only what they rise by does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetwell.probes.nvml_binding import GONE, field_values, pynvml
from fleetwell.probes.nvml_limits import limits

if TYPE_CHECKING:
    from fleetwell.probes.nvml_binding import Gpu
    from fleetwell.probes.nvml_samples import Samples
    from fleetwell.probes.report import Report

MAX_LINKS = 36


def states(gpu: Gpu) -> dict[int, bool]:
    """Tell which NVLinks are active; empty where the GPU has none."""
    found = {}
    for link in range(MAX_LINKS):
        try:
            found[link] = bool(pynvml.nvmlDeviceGetNvLinkState(gpu.handle, link))
        except pynvml.NVMLError as error:
            if error.value in GONE:
                raise
            if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED or link == 0:
                break  # Behind the last one, or a GPU that has none.
    return found


def compare(seen: Report, gpus: dict[Gpu, dict[int, bool]], switched: set[str]) -> None:
    """Call a link down that must be up.

    It must where the GPU has joined a fabric, or is of a whole board of a known model. Else where it is up on most of
    the machine's GPUs: bridges may rightly leave a link unused.

    :param switched: UUIDs of the GPUs that have joined their fabric.
    """
    for link in sorted({link for found in gpus.values() for link in found}):
        having = {gpu: found[link] for gpu, found in gpus.items() if link in found}
        active = sum(having.values())
        for gpu, up in having.items():
            component = f"nvlink/{gpu.uuid}/{link}"
            seen.covers(component)
            if up:
                continue
            if active * 2 > len(having):
                why = f"it is active on {active} of the machine's {len(having)} GPUs"
            elif gpu.uuid in switched:
                why = "the GPU has joined its fabric, so it leads to a switch"
            elif link < _must(gpu, len(gpus)):
                why = f"all links of a board of {len(gpus)} {gpu.name} are used"
            else:
                continue
            seen.fault("NvlinkDown", component, f"NVLink {link} is inactive; {why}")
    short = [gpu for gpu, found in gpus.items() if len(found) < _must(gpu, len(gpus))]
    if short:
        seen.blind(f"nvml: {len(short)} of {len(gpus)} GPUs tell of fewer NVLinks than their model has")


def _must(gpu: Gpu, machine_has: int) -> int:
    known = limits()
    if machine_has != known.board:
        return 0
    return next((number for part, number in known.nvlinks.items() if part in gpu.name), 0)


def error_rates(gpu: Gpu, links: list[int], samples: Samples) -> bool:
    """Compare the error counters with the look before; say whether the GPU has any of them."""
    table = limits().nvlink_errors
    asked = list(table)
    first = field_values(gpu, [(field, links[0]) for field in asked])
    counted = [field for field, value in zip(asked, first, strict=True) if value is not None]
    if not counted:
        return False
    wanted = [(field, link) for link in links for field in counted]
    for (field, link), count in zip(wanted, field_values(gpu, wanted), strict=True):
        rate = table[field]
        if count is None:
            continue
        rose = samples.rise(gpu.uuid, f"{field}/{link}", count, per_second=rate.per_second, burst=rate.burst)
        if rose is not None:
            said = f"NVLink {link}: {rose} more {rate.says} in {samples.gap:.0f} s (at {count})"
            samples.said.append(["NvlinkErrorRate", f"nvlink/{gpu.uuid}/{link}", said])
    return True
