"""Judges the answers, whatever form they came in.

Utilisation is no evidence: on some GPUs it stays at 100 % for days with no process and idle power.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fleetwell.probes.nvidia_smi_document import Field, Told, told
from fleetwell.probes.nvidia_smi_findings import GpuJudge, NonsenseError

MAX_RETIRED_PAGES = 63
"""Pages that may be retired before Ampere (DCGM's limit)."""
MAX_REMAPPED_ROWS = 512
"""Rows remapped for uncorrectable errors from which the vendor's tools call the GPU worn out."""

_ACTIONS = {
    "none": "",
    "0": "",
    "reset": "GpuRecoveryActionReset",
    "gpu reset": "GpuRecoveryActionReset",
    "gpu reset required": "GpuRecoveryActionReset",
    "1": "GpuRecoveryActionReset",
    "reboot": "GpuRecoveryActionReboot",
    "node reboot": "GpuRecoveryActionReboot",
    "node reboot required": "GpuRecoveryActionReboot",
    "2": "GpuRecoveryActionReboot",
    "drain p2p": "GpuRecoveryActionDrainP2P",
    "3": "GpuRecoveryActionDrainP2P",
    "drain and reset": "GpuRecoveryActionDrainAndReset",
    "4": "GpuRecoveryActionDrainAndReset",
    "recover imex domain": "GpuRecoveryActionRecoverImex",
    "recover imex": "GpuRecoveryActionRecoverImex",
    "5": "GpuRecoveryActionRecoverImex",
}
LOADED = 10
"""Percent of utilisation that is work. A desktop's few percent come and go faster than the link changes its speed."""
_MASK = ((0x40, "GpuThermalSlowdown"), (0x80, "GpuPowerBrake"))
_MASK_SLOWDOWN = 0x08
_HEALTHY_FABRIC = {"full", "false", "no", "none", "healthy", "normal"}
_FAULTY_FABRIC = {"degraded", "true", "yes", "unhealthy", "limited capacity"}
_FULL_WIDTH = re.compile(r"\b(?:V100|P100|A100|A800|H100|H800|H200|H20|B100|B200|B300)\b")
"""Models that are always wired with all their lanes; T4, A10G or L4 are rightly sold with half of them."""


def _is_status(asked: Field, value: str) -> bool:
    """Say whether an error's text is the answer itself: how the fabric's setup went. In brackets it is the query's."""
    return asked is Field.FABRIC_STATUS and told(value) in {Told.VALUE, Told.FAILED} and not value.startswith("[")


def readings(judge: GpuJudge) -> None:
    """What the tool could not read. A lone error for the power draw passes by itself; several show a GPU in trouble."""
    kinds: dict[Told, list[Field]] = {}
    for asked, values in judge.gpu.answers.items():
        for value in values:
            if told(value) not in {Told.VALUE, Told.NOT_TOLD} and not _is_status(asked, value):
                kinds.setdefault(told(value), []).append(asked)
    if Told.LOST in kinds:
        judge.fault("GpuLost", f"the tool prints for it that the GPU is lost (asked: {kinds[Told.LOST][0].value})")
    if Told.NEEDS_RESET in kinds:
        judge.fault("GpuResetRequired", "the tool prints for it that the GPU requires a reset")
    failed = sorted({asked.value for asked in kinds.get(Told.FAILED, ())})
    if not failed:
        return
    said = f"errors instead of readings: {', '.join(failed)}"
    if len(failed) == 1 and failed[0] in {Field.POWER, Field.OTHER}:
        judge.fault("GpuReadingFailed", said)
    else:
        judge.fault("GpuHandleError", said, verdict="" if len(failed) > 2 else "UNKNOWN")


def recovery_action(judge: GpuJudge) -> bool:
    """What the driver itself asks for."""
    values = judge.values(Field.RECOVERY_ACTION)
    for value in values:
        fault = _ACTIONS.get(value.lower(), "GpuRecoveryActionUnknown")
        if fault:
            judge.fault(fault, f"GPU recovery action: {value}")
    required, recommended = judge.flags(Field.RESET_REQUIRED), judge.flags(Field.DRAIN_AND_RESET)
    if any(required):
        judge.fault("GpuResetRequired", "GPU reset status: reset required")
    if any(recommended):
        judge.fault("GpuRecoveryActionDrainAndReset", "GPU reset status: drain and reset recommended")
    return bool(values or required or recommended)


def memory_repair(judge: GpuJudge) -> bool:
    """Rows and pages that wait for a reset or could not be repaired. Not told for rows while MIG is on."""
    pending, failed = judge.flags(Field.ROWS_PENDING), judge.flags(Field.ROWS_FAILED)
    rows, pages = judge.numbers(Field.ROWS_UNCORRECTABLE), judge.flags(Field.PAGES_PENDING)
    retired = sum(judge.numbers(Field.RETIRED_SINGLE)) + sum(judge.numbers(Field.RETIRED_DOUBLE))
    unrepairable, repair = judge.flags(Field.UNREPAIRABLE), judge.flags(Field.REPAIR_PENDING)
    if any(failed):
        judge.fault("GpuRowRemapFailed", "remapped rows: a remapping failed")
    elif any(unrepairable):
        judge.fault("GpuRowRemapFailed", "ECC errors: memory that cannot be repaired")
    elif any(count >= MAX_REMAPPED_ROWS for count in rows):
        judge.fault("GpuRowRemapFailed", f"{max(rows):g} rows were remapped for uncorrectable errors")
    if any(pending):
        judge.fault("GpuRowRemapPending", "remapped rows: pending")
    if any(pages):
        judge.fault("GpuPageRetirementPending", "retired pages: pending")
    if any(repair):
        judge.fault("GpuResourceRetired", "ECC errors: a repair is pending")
    if retired > MAX_RETIRED_PAGES:
        judge.fault("GpuRetiredPagesExceeded", f"{retired:g} retired pages, of {MAX_RETIRED_PAGES} that may be")
    return bool((pending and failed) or pages)


def uncorrected_errors(judge: GpuJudge) -> bool:
    """Errors since the last reset that could not be corrected. The lifetime's count is history and judged by nobody."""
    counts = judge.numbers(Field.VOLATILE_UNCORRECTABLE)
    if any(counts):
        judge.fault("GpuEccUncorrectable", f"{max(counts):g} uncorrectable memory errors since the last reset")
    return bool(counts)


def on_chip_memory_threshold(judge: GpuJudge) -> bool:
    """The vendor's own limit of uncorrectable errors in on-chip memory."""
    flags = judge.flags(Field.SRAM_THRESHOLD)
    if any(flags):
        judge.fault("GpuSramThresholdExceeded", "SRAM threshold exceeded: yes")
    return bool(flags)


def heat(judge: GpuJudge) -> bool:
    """Degrees left until the GPU slows down; for the memory, its limit."""
    margins = judge.numbers(Field.MARGIN)
    now, limits = judge.numbers(Field.TEMPERATURE), judge.numbers(Field.SLOWDOWN_TEMPERATURE)
    if margins and min(margins) <= 0:
        judge.fault("GpuOverheating", f"{min(margins):g} °C left until it slows down")
    elif not margins and now and limits and max(now) >= min(limits):
        judge.fault("GpuOverheating", f"{max(now):g} °C where it slows down at {min(limits):g} °C")
    memory, most = judge.numbers(Field.MEMORY_TEMPERATURE), judge.numbers(Field.MEMORY_MAX_TEMPERATURE)
    if memory and most and max(memory) > min(most):
        judge.fault("GpuMemoryOverheating", f"memory at {max(memory):g} °C, of {min(most):g} °C that it may have")
    return bool(margins or (now and limits))


def clock_limits(judge: GpuJudge) -> bool:
    """Whether the hardware holds the clocks down, for heat or for want of power."""
    found: set[str] = set()
    masks = judge.values(Field.CLOCK_MASK)
    slowdown = any(judge.flags(Field.HW_SLOWDOWN))
    for mask in masks:
        try:
            bits = int(mask, 0)
        except ValueError:
            raise NonsenseError(f"clocks event reasons are {mask[:40]!r}") from None
        found |= {fault for bit, fault in _MASK if bits & bit}
        slowdown |= bool(bits & _MASK_SLOWDOWN)
    if any(judge.flags(Field.HW_THERMAL)):
        found.add("GpuThermalSlowdown")
    if any(judge.flags(Field.HW_POWER_BRAKE)):
        found.add("GpuPowerBrake")
    for fault in sorted(found or ({"GpuHardwareSlowdown"} if slowdown else ())):
        judge.fault(fault, "clocks event reasons: active")
    return bool(masks or judge.values(Field.HW_SLOWDOWN) or judge.values(Field.HW_THERMAL))


def pcie_speed(judge: GpuJudge) -> bool:
    """The link's generation, judged only under load: an idle GPU lowers it by itself."""
    now, most = judge.numbers(Field.GEN), judge.numbers(Field.GEN_MAX)
    load, state = judge.numbers(Field.UTILIZATION), judge.values(Field.PSTATE)
    if not (now and most and load and state):
        return False
    if max(load) >= LOADED and state[0] in {"P0", "P1", "P2"} and min(now) < max(most):
        judge.fault("PcieDegraded", f"PCIe generation {min(now):g} under load, where {max(most):g} is possible")
    return True


def fabric(judge: GpuJudge) -> bool:
    """Whether the GPU has joined its NVLink fabric, and what the fabric says of itself."""
    for state in judge.values(Field.FABRIC_STATE):
        if state.lower() in {"not started", "in progress"}:
            judge.fault("FabricIncomplete", f"fabric state: {state}")
        elif state.lower() != "completed":
            raise NonsenseError(f"fabric state is {state[:40]!r}")
        else:
            for status in judge.gpu.answers.get(Field.FABRIC_STATUS, ()):
                if status.lower() not in {"success", "0"} and _is_status(Field.FABRIC_STATUS, status):
                    judge.fault("FabricDegraded", f"fabric state: {state}, status: {status}")
    for health in judge.values(Field.FABRIC_HEALTH):
        row, _, word = health.lower().rpartition("=")  # A query's cell has no row's name before it.
        if "not supported" in word or word in _HEALTHY_FABRIC:
            continue
        if word in _FAULTY_FABRIC or row == "incorrect_configuration":  # That row names what is wrong (R580).
            judge.fault("FabricDegraded", f"fabric health: {health}")
        else:
            judge.fault("FabricDegraded", f"fabric health: {health}", verdict="UNKNOWN")
    return bool(judge.values(Field.FABRIC_STATE))


QUESTIONS: tuple[Callable[[GpuJudge], bool], ...] = (
    recovery_action,
    memory_repair,
    uncorrected_errors,
    on_chip_memory_threshold,
    heat,
    clock_limits,
    pcie_speed,
    fabric,
)
"""Each says whether the GPU answered it."""
OPTIONAL = frozenset({"fabric", "on_chip_memory_threshold"})
"""Questions that most machines do not have: no answer is no blindness."""


def answer(judge: GpuJudge) -> str:
    """Ask one GPU everything; give what made no sense, empty where all did."""
    nonsense = ""
    readings(judge)
    if any(judge.values(asked) for asked in (Field.TEMPERATURE, Field.POWER, Field.UTILIZATION)):
        judge.judged.add(readings.__name__)  # It answers: that much even the table of a divided GPU says.
    for question in QUESTIONS:
        try:
            if question(judge):
                judge.judged.add(question.__name__)
        except NonsenseError as error:
            nonsense = nonsense or str(error)
    return nonsense


def widths(judges: Mapping[str, GpuJudge]) -> str:
    """Compare the PCIe widths: a slot may rightly be narrow, but then it is so for all equal GPUs."""
    widest: dict[str, float] = {}
    found: dict[str, tuple[str, float, float]] = {}
    for component, judge in judges.items():
        try:
            now, most = judge.numbers(Field.WIDTH), judge.numbers(Field.WIDTH_MAX)
        except NonsenseError as error:
            return str(error)
        if now and most:
            model = judge.gpu.one(Field.NAME)
            found[component] = (model, min(now), max(most))
            widest[model] = max(widest.get(model, 0), min(now))
    for component, (model, lanes, most_lanes) in found.items():
        said = f"PCIe width x{lanes:g} of x{most_lanes:g}"
        if lanes >= most_lanes:
            continue
        if lanes < widest[model]:
            judges[component].fault("PcieDegraded", f"{said}; an equal GPU beside it has x{widest[model]:g}")
        elif _FULL_WIDTH.search(model) or lanes * 4 <= most_lanes:
            judges[component].fault("PcieDegraded", said)
        else:
            judges[component].seen.blind(f"nvidia-smi: {said} on all equal GPUs; the machine may be built so")
    return ""
