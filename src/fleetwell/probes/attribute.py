"""Reads one attribute of sysfs."""

from __future__ import annotations

import os
from pathlib import Path


def text(path: Path) -> str:
    """Read one attribute; empty when it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, 4096).decode(errors="replace").strip()  # A thousand of these make a look.
    except OSError:
        return ""
    finally:
        os.close(file)
