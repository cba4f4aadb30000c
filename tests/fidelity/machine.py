"""Writes out a machine's sysfs from a short description, as the kernel lays it out.

A device lies in ``sys/devices`` below the port that it is plugged into; ``sys/bus/pci/devices`` and
``sys/class/infiniband`` point there. So a case says only what is out of the ordinary::

    [case.host_root.machine]
    gpus = { count = 8, absent = [3] }
    nics = [{ count = 8, name = "mlx5_{}", model = "cx7", rate = "400 Gb/sec (4X NDR)", one = { 3 = { ... } } }]
    files = { "sys/module/mlx5_ib/initstate" = "live" }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MODELS = {
    # vendor, device, subsystem, driver, PCI class
    "cx4lx": ("0x15b3", "0x1015", "0x0003", "mlx5_core", "0x020000"),
    "cx6": ("0x15b3", "0x101b", "0x0007", "mlx5_core", "0x020700"),
    "cx6dx": ("0x15b3", "0x101d", "0x0016", "mlx5_core", "0x020000"),
    "cx7": ("0x15b3", "0x1021", "0x0041", "mlx5_core", "0x020700"),
    "cx7-roce": ("0x15b3", "0x1021", "0x0041", "mlx5_core", "0x020000"),
    "cx8": ("0x15b3", "0x1023", "0x0061", "mlx5_core", "0x020700"),
    "bf3": ("0x15b3", "0xa2dc", "0x0015", "mlx5_core", "0x020000"),
    "mlx5-vf": ("0x15b3", "0x101e", "0x0041", "mlx5_core", "0x020700"),
    "azure-an": ("0x15b3", "0x101a", "0x0000", "mlx5_core", "0x020000"),
    "cx3": ("0x15b3", "0x1003", "0x0050", "mlx4_core", "0x020700"),
    "efa": ("0x1d0f", "0xefa2", "0xefa2", "efa", "0x020000"),
    "thor2": ("0x14e4", "0x1760", "0x9140", "bnxt_en", "0x020000"),
    "e810": ("0x8086", "0x1592", "0x0002", "ice", "0x020000"),
}
_UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}
DOWN = {"state": "1: DOWN", "phys_state": "3: Disabled"}
_GEN5 = "32.0 GT/s PCIe"


def tree(said: Mapping[str, Any]) -> dict[str, str]:
    """Give the files and links: path → text, a link as ``-> target``, bytes as ``hex …``."""
    files: dict[str, str] = {}
    bus = 0x10
    for gpus in _list(said.get("gpus", [])):
        bus = _gpus(files, gpus, bus)
    for group in said.get("nics", []):
        bus = _nics(files, group, bus)
    return files | dict(said.get("files", {}))


def _list(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, int):
        return [{"count": value}]
    return [value] if isinstance(value, Mapping) else list(value)


def _gpus(files: dict[str, str], group: Mapping[str, Any], bus: int) -> int:
    for number in range(group["count"]):
        own = {**group, **group.get("one", {}).get(str(number), {})}
        if number in group.get("absent", []):
            continue
        functions = [(f"{bus + number:02x}:00.0", False)]
        functions += [(f"{bus + number:02x}:00.{index + 1}", True) for index in range(own.get("vfs", 0))]
        for address, virtual in functions:
            device = _plugged(files, address, own)
            files |= {
                f"{device}/vendor": "0x10de",
                f"{device}/device": own.get("device", "0x2330"),
                f"{device}/subsystem_device": "0x16c1",
                f"{device}/class": own.get("class", "0x030200"),
                f"{device}/config": "hex ffffffff" if virtual else own.get("config", "hex de103023"),
            }
            if virtual:
                files[f"{device}/physfn"] = f"-> ../{functions[0][0]}"
    return bus + int(group["count"])


def _nics(files: dict[str, str], group: Mapping[str, Any], bus: int) -> int:
    functions = group.get("functions", 1)
    count = group.get("count", 1)
    for number in range(count):
        own = {**group, **group.get("one", {}).get(str(number), {})}
        if not own.get("present", True):
            continue
        address = own.get("at", f"0000:{bus + number // functions:02x}:00.{number % functions}")
        name = own["name"].format(number + group.get("first", 0))
        if own.get("hardware", True):
            _pci(files, address, own)
        if own.get("rdma", True):
            _rdma(files, name, address, own)
    return bus + -(-int(count) // int(functions))


def _pci(files: dict[str, str], address: str, own: Mapping[str, Any]) -> None:
    vendor, number, subsystem, driver, kind = MODELS[own["model"]]
    driver = own.get("driver", driver)
    device = _plugged(files, address.removeprefix("0000:"), own)
    files |= {
        f"{device}/vendor": vendor,
        f"{device}/device": own.get("device", number),
        f"{device}/subsystem_device": own.get("subsystem", subsystem),
        f"{device}/class": kind,
    }
    if driver:
        files[f"{device}/driver"] = f"-> {'../' * (device.count('/') - 1)}bus/pci/drivers/{driver}"
        files[f"sys/bus/pci/drivers/{driver}/bind"] = ""
    if "config" in own:
        files[f"{device}/config"] = own["config"]
    if own.get("vf"):
        files[f"{device}/physfn/vendor"] = vendor
    for index, interface in enumerate(_names(own.get("net"))):
        files[f"{device}/net/{interface}/operstate"] = own.get("operstate", "up")
        files[f"{device}/net/{interface}/dev_port"] = str(index)


def _rdma(files: dict[str, str], name: str, address: str, own: Mapping[str, Any]) -> None:
    folder = f"sys/class/infiniband/{name}"
    if own.get("hardware", True) or "at" in own:
        files[f"{folder}/device"] = f"-> ../../../bus/pci/devices/{address}"
    files[f"{folder}/fw_ver"] = own.get("fw_ver", "28.43.2026")
    for number in _names(own.get("ports", ["1"])):
        up = number in _names(own.get("up", own.get("ports", ["1"])))
        attributes = {**(_UP if up else DOWN), "link_layer": own.get("layer", "InfiniBand")}
        if own.get("rate"):
            attributes["rate"] = own["rate"] if up else own.get("rate_down", "40 Gb/sec (4X QDR)")
        attributes |= {key: own[key] for key in ("state", "phys_state") if key in own}
        files |= {f"{folder}/ports/{number}/{key}": value for key, value in attributes.items()}


def _plugged(files: dict[str, str], address: str, own: Mapping[str, Any]) -> str:
    """Put a device below its slot, where the case names one, and on the bus."""
    slot = own.get("slot")
    root = "sys/devices/pci0000:00"
    if slot is not None:
        root += f"/0000:00:{int(address[:2], 16) % 32:02x}.0"
        files |= {f"{root}/max_link_speed": slot[0], f"{root}/max_link_width": str(slot[1])}
    device = f"{root}/0000:{address}"
    files[f"sys/bus/pci/devices/0000:{address}"] = f"-> ../../../{device.removeprefix('sys/')}"
    now, can = own.get("link", (_GEN5, 16)), own.get("can", (_GEN5, 16))
    if now:
        files |= {f"{device}/current_link_speed": now[0], f"{device}/current_link_width": str(now[1])}
        files |= {f"{device}/max_link_speed": can[0], f"{device}/max_link_width": str(can[1])}
    return device


def _names(value: Any) -> list[str]:
    return list(_each(value))


def _each(value: Any) -> Iterator[str]:
    if isinstance(value, int):
        yield from (str(number + 1) for number in range(value))
    elif isinstance(value, str):
        yield value
    else:
        yield from (str(one) for one in value or ())
