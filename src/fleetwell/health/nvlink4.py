"""Reads the registers of an Xid 74 line (NVLink before Blackwell) by the table ``nvlink4.toml``."""

from __future__ import annotations

import enum
import re
import tomllib
from typing import Final

from fleetwell.health.catalogue import read_data

_VALID: Final = (0, 2, 3, 4)
_REGISTERS: Final = re.compile(r"\blink \d{1,3}\(((?:0x[0-9a-fA-F]{1,8}(?:, ?|(?=\)))){1,9})\)")


class Nvlink4(enum.Enum):
    """What the registers say."""

    NOTED = "nothing that asks for an action"
    SECONDARY = "the consequence of another error"
    PARITY = "ECC or parity"
    ERROR = "an error of the link"


def _masks(name: str) -> dict[int, int]:
    table: dict[str, list[int]] = tomllib.loads(read_data("nvlink4.toml"))[name]
    return {int(register): sum(1 << bit for bit in bits) for register, bits in table.items()}


_IGNORE: Final = _masks("ignore")
_SECONDARY: Final = _masks("secondary")
_PARITY: Final = _masks("parity")


def decode_nvlink4(message: str) -> Nvlink4:
    """Give what the registers of an Xid 74 message say; an error where there are none, or only zeros."""
    match = _REGISTERS.search(message)
    registers = [int(word, 16) for word in match[1].split(",")] if match else []
    words = {number: registers[number] for number in _VALID if number < len(registers)}
    if not any(words.values()):
        return Nvlink4.ERROR
    left = {number: word & ~_IGNORE.get(number, 0) for number, word in words.items()}
    if not any(left.values()):
        return Nvlink4.NOTED
    if not any(word & ~_SECONDARY.get(number, 0) for number, word in left.items()):
        return Nvlink4.SECONDARY
    # Beside parity other bits may be set: they ask for the same action now, and parity decides about repetition.
    if any(word & _PARITY.get(number, 0) for number, word in left.items()):
        return Nvlink4.PARITY
    return Nvlink4.ERROR
