"""The lines of a flood: equal ones, and hostile ones that all differ."""

from __future__ import annotations

from collections.abc import Callable

XID_95 = "NVRM: Xid (PCI:0000:3f:00): 95, pid=1234, name=python3, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"
UNIT = "Graphics SM Warp Exception on (GPC {}, TPC {}, SM 0): Out Of Range Address"


def equal(_number: int) -> str:
    return "3," + XID_95


def processes(number: int) -> str:
    """Give lines of ever new processes, some of whose names try to look like another line."""
    name = ("python3", "a: 79, b", "x): 79, GPU has", "ray::Worker")[number % 4]
    code = (31, 43, 45, 94, 13, 32)[number % 6]
    where = UNIT.format(number % 9, number % 7)
    return f"3,NVRM: Xid (PCI:0000:{number % 8:02x}:00): {code}, pid={number}, name={name}, {where}"


def addresses(number: int) -> str:
    """Give lines of GPUs that no machine has."""
    address = f"{number >> 8 & 0xFFFF:04x}:{number & 0xFF:02x}:00"
    return f"3,NVRM: Xid (PCI:{address}): {number % 200}, pid={number}, name=python3, Ch 00000008"


def registers(number: int) -> str:
    """Give link errors with ever new registers."""
    word = number * 2654435761 & 0xFFFFFFFF
    link = f"Link {number % 18:02d} (0x{word:08x} 0x{number:08x} 0x0)"
    return f"3,NVRM: Xid (PCI:0000:{number % 8:02x}:00): {144 + number % 7}, RLW_SRC_TRACK Nonfatal XC1 i0 {link}"


def numbers(number: int) -> str:
    """Give ever new numbers, which no catalogue has."""
    return f"3,NVRM: Xid (PCI:0000:{number % 8:02x}:00): {number % 900_000}, pid={number}, name=python3, Ch 00000008"


def drivers(number: int) -> str:
    """Give garbage that begins as the lines of many drivers do."""
    start = (
        "NVRM: RmInitAdapter ",
        "nvme nvme0: I/O timeout ",
        "mlx5_core 0000:18:00.0: Port module event ",
        "EDAC MC0: 1 UE ",
        "nvidia-nvswitch0: SXid (",
        "INFO: task x blocked ",
        "efa 0000:4f:00.0: Admin ",
        "I/O error, dev sda, sector ",
    )[number % 8]
    return f"3,{start}{number} " + "x" * (number % 60)


def programs(number: int) -> str:
    """Give what user space writes, and crashes of programs."""
    if number % 2:
        return f"12,NVRM: Xid (PCI:0000:3f:00): 79, pid={number}, GPU has fallen off the bus."
    return f"6,p{number % 9999}[{number}]: segfault at {number:x} ip 7f00 sp 7f00 error 4 in libnccl.so.2[7f00+1000]"


def mixed(number: int) -> str:
    return (processes, addresses, registers, drivers, programs)[number % 5](number)


KINDS: dict[str, Callable[[int], str]] = {
    "equal": equal,
    "processes": processes,
    "addresses": addresses,
    "registers": registers,
    "numbers": numbers,
    "drivers": drivers,
    "programs": programs,
    "mixed": mixed,
}
