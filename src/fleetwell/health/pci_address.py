"""One spelling for PCI addresses: the kernel log, NVML and sysfs each write them in their own way."""

from __future__ import annotations

import re
from typing import Final

PCI: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
"""The forms in which an address is printed, for use inside other patterns."""

_ADDRESS: Final = re.compile(PCI)


def normalise_pci(address: str) -> str:
    """Give ``0000:b3:00`` for ``0000:B3:00.0``, ``00000000:b3:00.0`` and ``PCI:0000:b3:00``; others unchanged.

    The function number is dropped: a GPU's is 0, and the driver prints its lines with and without it.
    """
    bare = address.strip().removeprefix("PCI:")
    if not _ADDRESS.fullmatch(bare):
        return bare
    domain, bus, device = bare.split(".")[0].lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{device}"
