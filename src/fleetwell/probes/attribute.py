"""Reads one attribute of sysfs."""

from __future__ import annotations

import os
from pathlib import Path


def text(path: Path) -> str:
    """Read one attribute; empty when it cannot be read."""
    try:
        return first_bytes(path, 4096).decode(errors="replace").strip()
    except OSError:
        return ""


def first_bytes(path: Path, size: int) -> bytes:
    """Read the beginning of a file: a thousand of these make a look.

    A tree that somebody hands over may hold anything: a FIFO is not waited for.

    :raises OSError: it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(file, size)
    finally:
        os.close(file)
