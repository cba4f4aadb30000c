"""Bounded, printable evidence: kernel lines, tool output and process names are hostile input that ends on screens."""

from __future__ import annotations

from typing import Final

LIMIT: Final = 240
"""Characters of one evidence line, after escaping."""


def evidence(text: str, limit: int = LIMIT) -> str:
    """Make one line of at most ``limit`` printable characters; control and bidirectional characters are escaped."""
    head = text[: limit + 1]
    if not head.isprintable():
        head = "".join(char if char.isprintable() else _escaped(char) for char in head)
    return head if len(head) <= limit else head[: limit - 1] + "…"


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
