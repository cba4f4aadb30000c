"""A checkpoint's manifest: every file with its size and SHA-256, and a checksum of itself.

torch.distributed.checkpoint has no checksums: a flipped bit in a file loads without an error. A directory without a
manifest that matches is not a checkpoint.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME = "manifest.json"
_CHUNK = 1 << 22


class FileSum(msgspec.Struct, frozen=True):
    """One file's size in bytes and SHA-256 in hex."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a checkpoint holds, and who wrote it. ``step`` counts completed steps."""

    step: int
    world: int
    generation: int
    fence: int
    files: dict[str, FileSum]


def sum_of(path: Path) -> FileSum:
    """Read a file and sum it up."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return FileSum(size, digest.hexdigest())


def write(directory: Path, manifest: Manifest) -> None:
    """Write the manifest durably; its first line is the checksum of its second."""
    body = msgspec.json.encode(manifest)
    with (directory / NAME).open("wb") as file:
        file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(directory: Path) -> Manifest | None:
    """Return the manifest; None when it is missing, torn or altered."""
    try:
        checksum, body, rest = (directory / NAME).read_bytes().split(b"\n")
        if rest or hashlib.sha256(body).hexdigest().encode() != checksum:
            return None
        return msgspec.json.decode(body, type=Manifest)
    except (OSError, ValueError):
        return None


def damage(directory: Path, manifest: Manifest, names: Iterable[str]) -> str | None:
    """Compare the named files with the manifest; return what is wrong first, or None."""
    for name in names:
        wanted = manifest.files[name]
        try:
            found = sum_of(directory / name)
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        if found.size != wanted.size:
            return f"{name} has {found.size} bytes instead of {wanted.size}"
        if found.sha256 != wanted.sha256:
            return f"{name} does not match its checksum"
    return None


def fsync_directory(directory: Path) -> None:
    """Make renames in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
