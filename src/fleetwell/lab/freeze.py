"""A frozen filesystem: whoever writes to it waits in the kernel (state D), and not even SIGKILL ends the wait.

That is what a process in a wedged driver call looks like, and nothing else on an ordinary machine gives it on demand.
An ext4 image is mounted through a loop device and frozen with the same ioctl that fsfreeze(8) uses; needs root.

It is identified by its folder alone, so that any process can thaw what another one froze, and every way out thaws
first: a frozen filesystem that is forgotten keeps its writers for ever.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_FIFREEZE = 0xC0045877  # linux/fs.h: _IOWR('X', 119, int)
_FITHAW = 0xC0045878  # linux/fs.h: _IOWR('X', 120, int)
_IMAGE_BYTES = 16 * 1024 * 1024
_TOOL_DEADLINE_S = 30


class FreezeError(RuntimeError):
    """A filesystem could not be made, frozen, thawed or unmounted."""


class FrozenFilesystem:
    """An ext4 filesystem in ``folder`` that can be frozen; nothing is done before ``freeze``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.mount_point = self.folder / "mount"
        # Writers use a path below the mount: were it not mounted, they would fail instead of writing to the folder.
        self.trap = self.mount_point / "trap" / "file"

    def freeze(self) -> Path:
        """Make, mount and freeze it; returns the path on which a write blocks. Raises FreezeError."""
        if self.is_mounted():
            message = f"{self.mount_point} is mounted already; it was left as it is.\nhint: dispose() of it first"
            raise FreezeError(message)
        try:
            self._mount()
            self.trap.parent.mkdir()
            self._ioctl(_FIFREEZE)
        except (OSError, FreezeError) as error:
            self.dispose()
            message = f"no frozen filesystem in {self.folder}: {error}. What had been made of it is removed."
            raise FreezeError(message) from error
        return self.trap

    def is_mounted(self) -> bool:
        """Whether the filesystem is mounted, frozen or not."""
        return str(self.mount_point) in mount_points()

    def thaw(self) -> None:
        """Let the writers go on. Nothing happens when it is not frozen or not mounted."""
        if self.is_mounted():
            with contextlib.suppress(OSError):  # EINVAL: it was not frozen
                self._ioctl(_FITHAW)

    def dispose(self) -> None:
        """Thaw, unmount and remove it; can be called again. Raises FreezeError when it cannot be unmounted."""
        self.thaw()
        if self.is_mounted():
            # Lazy, because a writer that has just been woken may still hold the file for a moment.
            _tool("umount", "--lazy", str(self.mount_point))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mount(self) -> None:
        self.mount_point.mkdir(parents=True)
        image = self.folder / "image"
        with image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        _tool("mkfs.ext4", "-q", "-F", str(image))
        _tool("mount", "-t", "ext4", "-o", "loop,noatime", str(image), str(self.mount_point))

    def _ioctl(self, request: int) -> None:
        directory = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(directory, request, 0)
        finally:
            os.close(directory)


def available() -> str | None:
    """Return why this machine cannot freeze a filesystem, or None when it can.

    It is tried, since root alone does not say it: containers often have root and no loop devices.
    """
    if os.geteuid() != 0:
        return "freezing a filesystem needs root"
    for program in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(program) is None:
            return f"freezing a filesystem needs {program}, which is not installed"
    with tempfile.TemporaryDirectory(prefix="fleetwell-freeze-") as folder:
        filesystem = FrozenFilesystem(Path(folder) / "probe")
        try:
            filesystem.freeze()
        except FreezeError as error:
            return str(error)
        filesystem.dispose()
    return None


def mount_points() -> list[str]:
    """Return every mount point that this process sees, in the order of mounting."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    # The fifth field, with blanks and the like as octal escapes.
    return [line.split(" ")[4].encode().decode("unicode_escape") for line in lines]


def release_under(folder: Path) -> list[Path]:
    """Thaw and remove every frozen filesystem below a folder, whoever made it; returns where they were.

    For the last step of whatever tears a lab down: without it the folder could not be removed.
    """
    below = f"{folder.resolve()}/"
    found = [Path(point) for point in mount_points() if point.startswith(below) and Path(point).name == "mount"]
    for point in found:
        FrozenFilesystem(point.parent).dispose()
    return found


def _tool(*argv: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TOOL_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"`{' '.join(argv)}` did not run: {error}"
        raise FreezeError(message) from error
    if done.returncode != 0:
        message = f"`{' '.join(argv)}` ended with exit code {done.returncode}: {done.stderr.strip()}"
        raise FreezeError(message)
