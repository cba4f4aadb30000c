"""Prints what ``nvidia-smi -q`` and ``-q -x`` print for a machine, from one tree of headings and values.

The headings and their order are those of one driver on one board, which the tool changed over the years; a case names
the board and what differs from a well GPU.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

BOARDS = {
    "k80": ("384.111", "", 36),
    "geforce": ("515.65.01", "11.7", 42),
    "a100": ("515.65.01", "11.7", 42),
    "h100": ("570.133.20", "12.8", 42),
    "gb200": ("580.159.04", "13.0", 47),
}
"""Driver, CUDA version and column of the values. Each has its tree in ``smi_<board>.txt``."""
BUSES = ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db")
_STAMP = "Mon May 11 10:35:49 2026"
_TAG = re.compile(r"[^a-z0-9]+")


class UnknownHeadingError(LookupError):
    """A case changes a heading that the tool does not print."""


def uuid(index: int) -> str:
    """Give the UUID of a GPU."""
    return f"GPU-{index:08d}-aaaa-bbbb-cccc-{index:012d}"


def long_form(
    gpus: int, changes: Mapping[str, Mapping[str, str]], attached: int | None = None, board: str = "h100"
) -> str:
    """Print the long form.

    :param changes: index → path of headings (``ECC Errors/Volatile/DRAM Uncorrectable``) → value.
    """
    driver, cuda, column = BOARDS[board]
    said = {"Timestamp": _STAMP, "Driver Version": driver, **({"CUDA Version": cuda} if cuda else {})}
    lines = ["", "==============NVSMI LOG==============", ""]
    lines += [*(f"{name:<{column}}: {value}" for name, value in said.items()), ""]
    lines.append(f"{'Attached GPUs':<{column}}: {gpus if attached is None else attached}")
    for index in range(gpus):
        lines.append(f"GPU 00000000:{BUSES[index].upper()}:00.0")
        for depth, name, value, _ in _block(index, changes.get(str(index), {}), board):
            indent = " " * (4 * (depth + 1))
            lines.append(indent + name if value is None else f"{indent + name:<{column}}: {value}")
        lines.append("")
    return "\n".join(lines) + "\n"


def xml_form(
    gpus: int, changes: Mapping[str, Mapping[str, str]], attached: int | None = None, board: str = "h100"
) -> str:
    """Print the XML form."""
    driver, cuda, _ = BOARDS[board]
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', "<nvidia_smi_log>"]
    lines += [f"\t<timestamp>{_STAMP}</timestamp>", f"\t<driver_version>{driver}</driver_version>"]
    lines += [
        f"\t<cuda_version>{cuda}</cuda_version>",
        f"\t<attached_gpus>{gpus if attached is None else attached}</attached_gpus>",
    ]
    for index in range(gpus):
        lines.append(f'\t<gpu id="00000000:{BUSES[index].upper()}:00.0">')
        open_tags: list[str] = []
        for depth, name, value, _ in _block(index, changes.get(str(index), {}), board):
            while len(open_tags) > depth:
                lines.append("\t" * (len(open_tags) + 1) + f"</{open_tags.pop()}>")
            tag = _xml_tag(name, open_tags)
            if value is None:
                lines.append("\t" * (depth + 2) + f"<{tag}>")
                open_tags.append(tag)
            else:
                text = "" if tag == "processes" else value
                lines.append("\t" * (depth + 2) + f"<{tag}>{text}</{tag}>")
        while open_tags:
            lines.append("\t" * (len(open_tags) + 1) + f"</{open_tags.pop()}>")
        lines.append("\t</gpu>")
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"


_XML_NAMES = {
    "gpu_uuid": "uuid",
    "serial_number": "serial",
    "gpu_current_temp": "gpu_temp",
    "gpu_t_limit_temp": "gpu_temp_tlimit",
    "memory_current_temp": "memory_temp",
    "bus": "pci_bus",
    "device": "pci_device",
    "domain": "pci_domain",
    "bus_id": "pci_bus_id",
    "device_id": "pci_device_id",
    "sub_system_id": "pci_sub_system_id",
    "gpu_link_info": "pci_gpu_link_info",
    "pcie_generation": "pcie_gen",
    "link_width": "link_widths",
    "correctable_error": "remapped_row_corr",
    "uncorrectable_error": "remapped_row_unc",
    "remapping_failure_occurred": "remapped_row_failure",
    "pending_page_blacklist": "pending_blacklist",
    "sram_uncorrectable_sec_ded": "sram_uncorrectable_secded",
    "idle": "clocks_event_reason_gpu_idle",
    "hw_slowdown": "clocks_event_reason_hw_slowdown",
    "hw_thermal_slowdown": "clocks_event_reason_hw_thermal_slowdown",
    "hw_power_brake_slowdown": "clocks_event_reason_hw_power_brake_slowdown",
    "sw_power_cap": "clocks_event_reason_sw_power_cap",
    "sw_thermal_slowdown": "clocks_event_reason_sw_thermal_slowdown",
    "gpu": "gpu_util",
}
_XML_NAMES_BELOW = {
    ("mig_mode", "current"): "current_mig",
    ("mig_mode", "pending"): "pending_mig",
    ("ecc_mode", "current"): "current_ecc",
    ("ecc_mode", "pending"): "pending_ecc",
    ("pcie_gen", "current"): "current_link_gen",
    ("pcie_gen", "max"): "max_link_gen",
    ("link_widths", "current"): "current_link_width",
    ("link_widths", "max"): "max_link_width",
    ("remapped_rows", "pending"): "remapped_row_pending",
}


def _xml_tag(name: str, above: list[str]) -> str:
    tag = _TAG.sub("_", name.lower()).strip("_")
    place = above[-1] if above else ""
    return _XML_NAMES_BELOW.get((place, tag)) or _XML_NAMES.get(tag, tag)


@functools.cache
def _tree(board: str) -> str:
    return (Path(__file__).parent / f"smi_{board}.txt").read_text(encoding="utf-8")


def _block(index: int, changes: Mapping[str, str], board: str) -> Iterator[tuple[int, str, str | None, str]]:
    """Give depth, heading, value (None for a heading alone) and path of each line of one GPU."""
    left = dict(changes)
    stack: list[str] = []
    values = {"BUS": BUSES[index].upper(), "UUID": uuid(index), "INDEX": str(index)}
    for line in _tree(board).splitlines():
        name, colon, value = line.strip().partition(" : ")
        depth = (len(line) - len(line.lstrip())) // 4
        del stack[depth:]
        stack.append(name)
        path = "/".join(stack)
        if not colon:
            yield depth, name, None, path
            continue
        for key, word in values.items():
            value = value.replace(f"${key}", word)
        value = left.pop(path, value)
        if value != "(left out)":
            yield depth, name, value, path
    if left:
        raise UnknownHeadingError(f"nvidia-smi -q has no {sorted(left)}")
