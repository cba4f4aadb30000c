"""Outputs of ``nvidia-smi`` for tests, written from what its forms are known to be: healthy unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping

UUIDS = tuple(f"GPU-{number:08x}-1111-2222-3333-44444444444{number}" for number in range(8))
BUSES = ("53", "64", "75", "86", "97", "A8", "B9", "CA")
GPU0, GPU1 = f"gpu/{UUIDS[0]}", f"gpu/{UUIDS[1]}"

_PART = """\
GPU 00000000:{bus}:00.0
    Product Name                          : {name}
    Product Brand                         : NVIDIA
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : {mig}
        Pending                           : {mig}
    Serial Number                         : 165000000000{number}
    GPU UUID                              : {uuid}
    VBIOS Version                         : 96.00.74.00.01
    GPU Reset Status
        Reset Required                    : {reset_required}
        Drain and Reset Recommended       : No
    GPU Recovery Action                   : {action}
    PCI
        Bus                               : 0x{bus}
        Bus Id                            : 00000000:{bus}:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : {gen}
                Device Current            : {gen}
            Link Width
                Max                       : 16x
                Current                   : {width}
        Replays Since Reset               : 0
        Tx Throughput                     : 0 KB/s
    Fan Speed                             : N/A
    Performance State                     : {pstate}
    Clocks Event Reasons
        Idle                              : Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : {slowdown}
            HW Thermal Slowdown           : {thermal}
            HW Power Brake Slowdown       : {brake}
        SW Thermal Slowdown               : Not Active
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 1 MiB
    Utilization
        Gpu                               : {util}
        Memory                            : 0 %
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 12
            DRAM Uncorrectable            : {uncorrectable}
        Aggregate
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            DRAM Correctable              : 14
            DRAM Uncorrectable            : 3
            SRAM Threshold Exceeded       : {sram}
    Retired Pages
        Single Bit ECC                    : {retired}
        Double Bit ECC                    : {retired}
        Pending Page Blacklist            : {blacklist}
    Remapped Rows
        Correctable Error                 : {rows}
        Uncorrectable Error               : {rows}
        Pending                           : {pending}
        Remapping Failure Occurred        : {failed}
    Temperature
        GPU Current Temp                  : 34 C
        GPU T.Limit Temp                  : {margin}
        GPU Slowdown T.Limit Temp         : -2 C
        Memory Current Temp               : 44 C
        Memory Max Operating T.Limit Temp : 0 C
    GPU Power Readings
        Average Power Draw                : {power}
        Instantaneous Power Draw          : {power}
        Current Power Limit               : 700.00 W
    Fabric
        State                             : {fabric}
        Status                            : {fabric_status}
        Health
            Bandwidth                     : {bandwidth}
            Route Recovery in progress    : False
    Processes                             : None
"""

_HEALTHY: Mapping[str, str] = {
    "name": "NVIDIA H100 80GB HBM3",
    "mig": "Disabled",
    "reset_required": "No",
    "action": "None",
    "gen": "5",
    "width": "16x",
    "pstate": "P0",
    "slowdown": "Not Active",
    "thermal": "Not Active",
    "brake": "Not Active",
    "util": "0 %",
    "uncorrectable": "0",
    "sram": "No",
    "retired": "N/A",
    "blacklist": "N/A",
    "rows": "0",
    "pending": "No",
    "failed": "No",
    "margin": "53 C",
    "power": "115.32 W",
    "fabric": "Completed",
    "fabric_status": "Success",
    "bandwidth": "Full",
}


def long_form(
    count: int = 2, changed: Mapping[int, Mapping[str, str]] | None = None, attached: int | None = None
) -> str:
    """``-q``; ``changed`` gives other values for some of the GPUs."""
    head = (
        "\n==============NVSMI LOG==============\n\n"
        "Timestamp                                 : Mon Jun 10 12:00:00 2024\n"
        "Driver Version                            : 570.86.15\n"
        "CUDA Version                              : 12.8\n\n"
        f"Attached GPUs                             : {count if attached is None else attached}\n"
    )
    return head + "\n".join(_part(number, (changed or {}).get(number, {})) for number in range(count))


def _part(number: int, changed: Mapping[str, str]) -> str:
    values = {**_HEALTHY, **changed}
    return _PART.format(number=number, bus=BUSES[number], uuid=UUIDS[number], **values)


def xml(count: int = 2, changed: Mapping[int, Mapping[str, str]] | None = None, processes: str = "") -> str:
    """``-q -x``."""
    gpus = "".join(
        _xml_gpu(number, {**_HEALTHY, **(changed or {}).get(number, {})}, processes) for number in range(count)
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        "\t<timestamp>Mon Jun 10 12:00:00 2024</timestamp>\n\t<driver_version>570.86.15</driver_version>\n"
        f"\t<attached_gpus>{count}</attached_gpus>\n{gpus}</nvidia_smi_log>\n"
    )


def _xml_gpu(number: int, values: Mapping[str, str], processes: str) -> str:
    reasons = "clocks_event_reason"
    return (
        f'\t<gpu id="00000000:{BUSES[number]}:00.0">\n\t\t<product_name>{values["name"]}</product_name>\n'
        f"\t\t<mig_mode><current_mig>{values['mig']}</current_mig></mig_mode>\n"
        f"\t\t<serial>165000000000{number}</serial>\n\t\t<uuid>{UUIDS[number]}</uuid>\n"
        f"\t\t<gpu_reset_status><reset_required>{values['reset_required']}</reset_required></gpu_reset_status>\n"
        f"\t\t<gpu_recovery_action>{values['action']}</gpu_recovery_action>\n"
        f"\t\t<pci><pci_bus_id>00000000:{BUSES[number]}:00.0</pci_bus_id><pci_gpu_link_info><pcie_gen>"
        f"<max_link_gen>5</max_link_gen><current_link_gen>{values['gen']}</current_link_gen></pcie_gen><link_widths>"
        f"<max_link_width>16x</max_link_width><current_link_width>{values['width']}</current_link_width></link_widths>"
        f"</pci_gpu_link_info></pci>\n\t\t<fan_speed>N/A</fan_speed>\n"
        f"\t\t<performance_state>{values['pstate']}</performance_state>\n"
        f"\t\t<{reasons}s><{reasons}_hw_slowdown>{values['slowdown']}</{reasons}_hw_slowdown>"
        f"<{reasons}_hw_thermal_slowdown>{values['thermal']}</{reasons}_hw_thermal_slowdown>"
        f"<{reasons}_hw_power_brake_slowdown>{values['brake']}</{reasons}_hw_power_brake_slowdown></{reasons}s>\n"
        f"\t\t<utilization><gpu_util>{values['util']}</gpu_util></utilization>\n"
        f"\t\t<ecc_errors><volatile><dram_uncorrectable>{values['uncorrectable']}</dram_uncorrectable></volatile>"
        f"<aggregate><dram_uncorrectable>3</dram_uncorrectable>"
        f"<sram_threshold_exceeded>{values['sram']}</sram_threshold_exceeded></aggregate></ecc_errors>\n"
        f"\t\t<retired_pages><double_bit_retirement><retired_count>{values['retired']}</retired_count>"
        f"</double_bit_retirement><pending_blacklist>{values['blacklist']}</pending_blacklist></retired_pages>\n"
        f"\t\t<remapped_rows><remapped_row_unc>{values['rows']}</remapped_row_unc>"
        f"<remapped_row_pending>{values['pending']}</remapped_row_pending>"
        f"<remapped_row_failure>{values['failed']}</remapped_row_failure></remapped_rows>\n"
        f"\t\t<temperature><gpu_temp>34 C</gpu_temp><gpu_temp_tlimit>{values['margin']}</gpu_temp_tlimit>"
        f"</temperature>\n"
        f"\t\t<gpu_power_readings><average_power_draw>{values['power']}</average_power_draw></gpu_power_readings>\n"
        f"\t\t<fabric><state>{values['fabric']}</state><status>{values['fabric_status']}</status>"
        f"<health><bandwidth>{values['bandwidth']}</bandwidth></health></fabric>\n"
        f"\t\t<processes>{processes}</processes>\n\t</gpu>\n"
    )


_TABLE_HEAD = """\
Mon Jun 10 12:00:00 2024
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""
_TABLE_BORDER = "+-----------------------------------------+------------------------+----------------------+\n"
_TABLE_END = """\

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
{processes}
+-----------------------------------------------------------------------------------------+
"""
NO_PROCESS = "|  No running processes found                                                             |"


def row(
    number: int = 0,
    fan: str = "N/A",
    temp: str = "34C",
    power: str = "115W",
    ecc: str = "0",
    util: str = "0%",
    mig: str = "Disabled",
    name: str = "NVIDIA H100 80GB HBM3",
    cap: str = "700W",
) -> str:
    """One GPU's lines of the table."""
    return (
        f"| {number:>3}  {name:<26}    On  |   00000000:{BUSES[number]}:00.0 Off | {ecc:>20} |\n"
        f"| {fan:<4}  {temp:<5}  P0           {power:>6} / {cap:>5} |       1MiB /  81559MiB "
        f"| {util:>7}      Default |\n"
        f"|                                         |                        | {mig:>20} |\n"
    )


def table(*rows: str, processes: str = NO_PROCESS, end: bool = True) -> str:
    """The table, with its list of processes unless it was left out."""
    body = _TABLE_BORDER.join([*rows]) + _TABLE_BORDER
    return _TABLE_HEAD + body + (_TABLE_END.format(processes=processes) if end else "")
