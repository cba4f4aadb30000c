"""How sysfs lays things out: attribute files with one value, devices in one place and relative links to them."""

import os
from pathlib import Path


def device_folder(root: Path, address: str) -> Path:
    """Return where a PCI device really is; ``sys/bus/pci/devices/ADDRESS`` links to it."""
    return root / "sys/devices" / f"pci{address[:7]}" / address


def put(path: Path, value: object) -> None:
    """Write one attribute file, with sysfs's newline; a reader sees the old or the new content, never a part."""
    content = f"{value}\n".encode()
    try:
        _create(path, content)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        _create(path, content)
    except FileExistsError:
        if path.read_bytes() != content:
            new = path.with_name(f".{path.name}.new")
            new.write_bytes(content)
            new.replace(path)


def _create(path: Path, content: bytes) -> None:
    # Two thousand of these make a boot, so no call more than it takes.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, content)
    finally:
        os.close(file)


def link(path: Path, target: Path) -> None:
    """Make ``path`` a relative link to ``target``; one that is there already stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(os.path.relpath(target, path.parent))
