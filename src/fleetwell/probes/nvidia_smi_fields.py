"""Which words each form of ``nvidia-smi`` uses for which question, over the driver versions since R418."""

from __future__ import annotations

from fleetwell.probes.nvidia_smi_document import Field, GpuAnswers, Told, told

_LINK = ("pci/gpu_link_info", "pci/pci_gpu_link_info")

PATHS: dict[str, Field] = {
    "product_name": Field.NAME,
    "gpu_uuid": Field.UUID,
    "uuid": Field.UUID,
    "serial_number": Field.SERIAL,
    "serial": Field.SERIAL,
    "pci/bus_id": Field.PCI,
    "pci/pci_bus_id": Field.PCI,
    "mig_mode/current": Field.MIG,
    "mig_mode/current_mig": Field.MIG,
    "mig_mode_current": Field.MIG,
    "gpu_recovery_action": Field.RECOVERY_ACTION,
    "gpu_reset_status/reset_required": Field.RESET_REQUIRED,
    "gpu_reset_status/drain_and_reset_recommended": Field.DRAIN_AND_RESET,
    f"{_LINK[0]}/pcie_generation/max": Field.GEN_MAX,
    f"{_LINK[1]}/pcie_gen/max_link_gen": Field.GEN_MAX,
    f"{_LINK[0]}/pcie_generation/current": Field.GEN,
    f"{_LINK[1]}/pcie_gen/current_link_gen": Field.GEN,
    f"{_LINK[0]}/link_width/max": Field.WIDTH_MAX,
    f"{_LINK[1]}/link_widths/max_link_width": Field.WIDTH_MAX,
    f"{_LINK[0]}/link_width/current": Field.WIDTH,
    f"{_LINK[1]}/link_widths/current_link_width": Field.WIDTH,
    "performance_state": Field.PSTATE,
    "clocks_event_reasons": Field.CLOCK_MASK,
    "utilization/gpu": Field.UTILIZATION,
    "utilization/gpu_util": Field.UTILIZATION,
    "fb_memory_usage/used": Field.MEMORY_USED,
    "ecc_mode/current": Field.ECC_MODE,
    "ecc_mode/current_ecc": Field.ECC_MODE,
    "volatile_ecc_uncorrectable": Field.VOLATILE_UNCORRECTABLE,
    "ecc_errors/aggregate/sram_threshold_exceeded": Field.SRAM_THRESHOLD,
    "ecc_errors/sram_threshold_exceeded": Field.SRAM_THRESHOLD,
    "ecc_errors/channel_repair_pending": Field.REPAIR_PENDING,
    "ecc_errors/tpc_repair_pending": Field.REPAIR_PENDING,
    "ecc_errors/unrepairable_memory": Field.UNREPAIRABLE,
    "retired_pages/single_bit_ecc": Field.RETIRED_SINGLE,
    "retired_pages/multiple_single_bit_retirement/retired_count": Field.RETIRED_SINGLE,
    "retired_pages/double_bit_ecc": Field.RETIRED_DOUBLE,
    "retired_pages/double_bit_retirement/retired_count": Field.RETIRED_DOUBLE,
    "retired_pages/pending_page_blacklist": Field.PAGES_PENDING,
    "retired_pages/pending": Field.PAGES_PENDING,
    "retired_pages/pending_blacklist": Field.PAGES_PENDING,
    "retired_pages/pending_retirement": Field.PAGES_PENDING,
    "remapped_rows/uncorrectable_error": Field.ROWS_UNCORRECTABLE,
    "remapped_rows/remapped_row_unc": Field.ROWS_UNCORRECTABLE,
    "remapped_rows/pending": Field.ROWS_PENDING,
    "remapped_rows/remapped_row_pending": Field.ROWS_PENDING,
    "remapped_rows/remapping_failure_occurred": Field.ROWS_FAILED,
    "remapped_rows/remapped_row_failure": Field.ROWS_FAILED,
    "temperature/gpu_current_temp": Field.TEMPERATURE,
    "temperature/gpu_temp": Field.TEMPERATURE,
    "temperature/gpu_t_limit_temp": Field.MARGIN,
    "temperature/gpu_temp_tlimit": Field.MARGIN,
    "temperature/gpu_slowdown_temp": Field.SLOWDOWN_TEMPERATURE,
    "temperature/gpu_temp_slow_threshold": Field.SLOWDOWN_TEMPERATURE,
    "temperature/memory_current_temp": Field.MEMORY_TEMPERATURE,
    "temperature/memory_temp": Field.MEMORY_TEMPERATURE,
    "temperature/memory_max_operating_temp": Field.MEMORY_MAX_TEMPERATURE,
    "temperature/gpu_temp_max_mem_threshold": Field.MEMORY_MAX_TEMPERATURE,
    "fan_speed": Field.FAN,
    "fabric/state": Field.FABRIC_STATE,
    "fabric_state": Field.FABRIC_STATE,
    "fabric/status": Field.FABRIC_STATUS,
}
"""Path of headings below a GPU → question: the long form's (as :func:`label` writes them) and the XML's."""

SECTIONS = frozenset(path.partition("/")[0] for path in PATHS) | {
    "clocks_throttle_reasons",
    "power_readings",
    "gpu_power_readings",
    "processes",
}
"""Headings of the long form that stand directly below a GPU."""
BELOW = frozenset(path.rpartition("/")[2] for path in PATHS if "/" in path) - SECTIONS
"""Headings that mean something only below another one."""

_CLOCKS = {
    "hw_slowdown": Field.HW_SLOWDOWN,
    "hw_thermal_slowdown": Field.HW_THERMAL,
    "hw_power_brake_slowdown": Field.HW_POWER_BRAKE,
    "hw_power_brake": Field.HW_POWER_BRAKE,
}

_REPAIRS = {
    "channel_repair_pending": Field.REPAIR_PENDING,
    "tpc_repair_pending": Field.REPAIR_PENDING,
    "unrepairable_memory": Field.UNREPAIRABLE,
}
_NO_HEALTH = frozenset({"partition_assigned"})
"""Rows below the fabric's health that say no fault: how the fabric is divided. The summary judges it (R580)."""

COLUMNS: dict[str, Field] = {
    "index": Field.INDEX,
    "count": Field.COUNT,
    "name": Field.NAME,
    "gpu_name": Field.NAME,
    "uuid": Field.UUID,
    "gpu_uuid": Field.UUID,
    "serial": Field.SERIAL,
    "gpu_serial": Field.SERIAL,
    "pci.bus_id": Field.PCI,
    "gpu_bus_id": Field.PCI,
    "mig.mode.current": Field.MIG,
    "gpu_recovery_action": Field.RECOVERY_ACTION,
    "reset_status.reset_required": Field.RESET_REQUIRED,
    "gpu_reset_status.reset_required": Field.RESET_REQUIRED,
    "reset_status.drain_and_reset_recommended": Field.DRAIN_AND_RESET,
    "gpu_reset_status.drain_and_reset_recommended": Field.DRAIN_AND_RESET,
    "pcie.link.gen.max": Field.GEN_MAX,
    "pcie.link.gen.current": Field.GEN,
    "pcie.link.width.max": Field.WIDTH_MAX,
    "pcie.link.width.current": Field.WIDTH,
    "pstate": Field.PSTATE,
    "clocks_event_reasons.active": Field.CLOCK_MASK,
    "clocks_event_reasons.hw_slowdown": Field.HW_SLOWDOWN,
    "clocks_event_reasons.hw_thermal_slowdown": Field.HW_THERMAL,
    "clocks_event_reasons.hw_power_brake_slowdown": Field.HW_POWER_BRAKE,
    "utilization.gpu": Field.UTILIZATION,
    "memory.used": Field.MEMORY_USED,
    "ecc.mode.current": Field.ECC_MODE,
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": Field.SRAM_THRESHOLD,
    "retired_pages.single_bit_ecc.count": Field.RETIRED_SINGLE,
    "retired_pages.sbe": Field.RETIRED_SINGLE,
    "retired_pages.double_bit.count": Field.RETIRED_DOUBLE,
    "retired_pages.dbe": Field.RETIRED_DOUBLE,
    "retired_pages.pending": Field.PAGES_PENDING,
    "remapped_rows.uncorrectable": Field.ROWS_UNCORRECTABLE,
    "remapped_rows.pending": Field.ROWS_PENDING,
    "remapped_rows.failure": Field.ROWS_FAILED,
    "temperature.gpu": Field.TEMPERATURE,
    "temperature.gpu.tlimit": Field.MARGIN,
    "temperature.memory": Field.MEMORY_TEMPERATURE,
    "power.draw": Field.POWER,
    "power.draw.average": Field.POWER,
    "power.draw.instant": Field.POWER,
    "fan.speed": Field.FAN,
    "fabric.state": Field.FABRIC_STATE,
    "fabric.status": Field.FABRIC_STATUS,
}
"""Column of ``--query-gpu`` or ``--query-remapped-rows`` → question."""


def note(gpu: GpuAnswers, path: str, value: str) -> None:
    """Note the value that the long form or the XML gives under a path of headings."""
    path = path.replace("clocks_throttle_reason", "clocks_event_reason")
    asked = PATHS.get(path) or _by_family(path)
    if asked is Field.FABRIC_HEALTH:
        value = f"{path.rpartition('/')[2]}={value}" if told(value) is Told.VALUE else value
    if asked is not None:
        gpu.add(asked, value)
    elif told(value) not in {Told.VALUE, Told.NOT_TOLD}:
        gpu.add(Field.OTHER, value)


def column(heading: str) -> Field | None:
    """Tell which question a column answers."""
    name = heading.replace("clocks_throttle_reasons", "clocks_event_reasons")
    if name.startswith("ecc.errors.uncorrected.volatile."):
        return Field.VOLATILE_UNCORRECTABLE
    last = name.rpartition(".")[2]
    if name.startswith("fabric.health.") and last not in _NO_HEALTH:
        return Field.FABRIC_HEALTH
    return COLUMNS.get(name) or _REPAIRS.get(last)


def _by_family(path: str) -> Field | None:
    first, _, rest = path.partition("/")
    last = path.rpartition("/")[2]
    if first == "clocks_event_reasons":
        return _CLOCKS.get(last.removeprefix("clocks_event_reason_"))
    if first in {"mig_device", "mig_devices"} and "/volatile" in path and "uncorrectable" in last:
        return Field.VOLATILE_UNCORRECTABLE  # What a divided GPU counts in its slices.
    if path.startswith("ecc_errors/volatile/") and ("uncorrectable" in last or "double_bit/" in path):
        return Field.VOLATILE_UNCORRECTABLE
    if first in {"power_readings", "gpu_power_readings"} and last.endswith("power_draw"):
        return Field.POWER
    if first == "fabric" and rest.startswith("health/") and last not in _NO_HEALTH:
        return Field.FABRIC_HEALTH
    return None
