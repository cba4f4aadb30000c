"""The hardware of one virtual node, in a folder: what its kernel, its driver and its firmware would show.

A ``Hardware`` holds nothing in memory but its folder, and every change is made under a file lock: the lab, its command
line, a fake ``nvidia-smi --gpu-reset`` and a test may all work on the same node from processes of their own.

The folder is a host's root: ``sys``, ``proc``, ``dev``, ``usr/bin/nvidia-smi``, ``usr/lib/x86_64-linux-gnu/
libnvidia-ml.so.1``; the lab's own files are in ``var/lib/fleetwell-lab``.
"""

import fcntl
import hashlib
import os
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

import fleetwell
from fleetwell.lab import boot_log, freeze, host_tree, nvml_build, nvml_state
from fleetwell.lab.kernel_log import Facility, KernelLog, Level, Line
from fleetwell.lab.machine import Machine
from fleetwell.lab.nvml_state import DriverState, GpuState, GpuVolatile, Holder, NodeState

STATE_VARIABLE = "FLEETWELL_NVML_STATE"
ROOT_VARIABLE = "FLEETWELL_LAB_ROOT"
_LAB = "var/lib/fleetwell-lab"


class HardwareError(RuntimeError):
    """Something was asked of the hardware that it does not do."""


class GpuInUseError(HardwareError):
    """A GPU cannot be reset while processes hold it."""

    def __init__(self, index: int, pids: tuple[int, ...]) -> None:
        super().__init__(f"GPU {index} is held by {', '.join(map(str, pids))}; it was not reset")
        self.pids = pids


class Hardware:
    """One virtual node's hardware, bound to its host root."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = root.absolute()
        self.state_file = self.root / _LAB / "nvml.state"
        self.library_folder = self.root / "usr/lib/x86_64-linux-gnu"
        self.nvidia_smi = self.root / "usr/bin/nvidia-smi"
        self.kernel_log = self.root / "dev/kmsg"
        self.freezer = freeze.FrozenFilesystem(self.root / _LAB / "frozen")
        self._clock = clock
        self._record = self.root / _LAB / "node.json"
        self._log = KernelLog(self.kernel_log, self.root / _LAB / "kmsg.head")

    @classmethod
    def create(
        cls,
        machine: Machine,
        root: Path,
        seed: str,
        *,
        library: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> "Hardware":
        """Make a machine and boot it for the first time; UUIDs and serials follow from ``seed`` alone.

        ``library`` is the mock NVML, compiled (or found in the cache) when it is not given.
        Raises HardwareError when the folder holds a machine already.
        """
        hardware = cls(root, clock)
        if hardware._record.exists():
            message = (
                f"{hardware.root} holds a machine already; it was left as it is.\n"
                "hint: replace() it, or take another folder"
            )
            raise HardwareError(message)
        hardware._record.parent.mkdir(parents=True, exist_ok=True)
        hardware._install(library or nvml_build.library(lambda _line: None))
        hardware._boot(_new(machine, seed))
        return hardware

    @property
    def state(self) -> NodeState:
        """What the node is like now: a copy, changes to it change nothing (see ``update``)."""
        return msgspec.json.decode(self._record.read_bytes(), type=NodeState)

    @property
    def machine(self) -> Machine:
        """What the machine is made of."""
        return self.state.machine

    @property
    def boot_id(self) -> str:
        """The id of the present boot."""
        return self.state.boot_id

    def environment(self) -> Mapping[str, str]:
        """Return the variables that make a process see this node's driver instead of the real one."""
        return {
            STATE_VARIABLE: str(self.state_file),
            ROOT_VARIABLE: str(self.root),
            "LD_LIBRARY_PATH": str(self.library_folder),
        }

    @contextmanager
    def update(self) -> Iterator[NodeState]:
        """Change the state: what the block does to it shows in NVML and sysfs when the block ends without an error."""
        with self._locked():
            state = self.state
            yield state
            self._save(state)
            host_tree.refresh(self.root, state)

    def write_kernel(self, text: str, level: Level = Level.ERROR, facility: Facility = Facility.KERNEL) -> None:
        """Write one line to the kernel log."""
        self.write_kernel_lines([Line(text, level, facility)])

    def write_kernel_lines(self, lines: Iterable[Line]) -> None:
        """Write several lines to the kernel log, numbered one after the other."""
        self._log.write(lines, self._clock())

    def reboot(self, now: float | None = None) -> str:
        """Boot again and return the new boot id: what is volatile is gone, what is lasting shows again."""
        self.freezer.dispose()
        with self._locked():
            state = self.state
            for gpu in state.gpus:
                gpu.lasting.absent = gpu.lasting.absent or gpu.lasting.dies
                gpu.volatile = GpuVolatile()
            for nic in state.nics.values():
                nic.counters = {}
            state.driver = DriverState()
            self._boot(state, now)
        return state.boot_id

    def replace(self, seed: str) -> None:
        """Put other hardware of the same type in its place: new UUIDs and serials, no faults, a new boot."""
        self.freezer.dispose()
        with self._locked():
            self._boot(_new(self.machine, seed))

    def reset_gpu(self, index: int) -> None:
        """Reset one GPU. Raises GpuInUseError when a process holds it, HardwareError when it does not answer."""
        with self.update() as state:
            gpu = self.gpu(state, index)
            pids = tuple(holder.pid for holder in gpu.volatile.holders if _alive(holder.pid))
            if pids:
                raise GpuInUseError(index, pids)
            if gpu.volatile.lost or gpu.lasting.absent:
                message = f"GPU {index} is lost and cannot be reset; nothing was changed.\nhint: reboot the node"
                raise HardwareError(message)
            gpu.volatile = GpuVolatile()

    def hold(self, index: int, pid: int, memory_mib: int = 1024) -> None:
        """Let a process have a GPU open; it ends with the process, or with ``release``."""
        with self.update() as state:
            holders = self.gpu(state, index).volatile.holders
            holders[:] = [one for one in holders if one.pid != pid and _alive(one.pid)] + [Holder(pid, memory_mib)]

    def release(self, pid: int) -> None:
        """Take a process off all GPUs."""
        with self.update() as state:
            for gpu in state.gpus:
                gpu.volatile.holders = [holder for holder in gpu.volatile.holders if holder.pid != pid]

    def dispose(self) -> None:
        """Undo what outlives a process: call it before the folder is removed. The node stays as it is."""
        self.freezer.dispose()

    @staticmethod
    def gpu(state: NodeState, index: int) -> GpuState:
        """Return one GPU of a state; HardwareError when there is no such GPU."""
        if not 0 <= index < len(state.gpus):
            message = f"there is no GPU {index}; {state.machine.instance_type} has 0 to {len(state.gpus) - 1}"
            raise HardwareError(message)
        return state.gpus[index]

    def _boot(self, state: NodeState, now: float | None = None) -> None:
        state.booted_at = self._clock() if now is None else now
        state.boot_id = str(uuid.uuid4())
        self._log.restart(state.booted_at)
        host_tree.build(self.root, state)
        self._save(state)
        self._log.write(boot_log.lines(state), state.booted_at)

    def _save(self, state: NodeState) -> None:
        _replace(self._record, msgspec.json.encode(state))
        _replace(self.state_file, nvml_state.render(state).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self.root / _LAB / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _install(self, library: Path) -> None:
        self.library_folder.mkdir(parents=True)
        (self.library_folder / nvml_build.LIBRARY).symlink_to(library)
        variables = dict(self.environment())
        # The tool runs in whatever environment the node's agent gives it, so it brings its own way to our package.
        variables["PYTHONPATH"] = str(Path(fleetwell.__file__).parents[1])
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        script = f'#!/bin/sh\n{assignments} exec {shlex.quote(sys.executable)} -m fleetwell.lab.nvidia_smi "$@"\n'
        self.nvidia_smi.parent.mkdir(parents=True)
        self.nvidia_smi.write_text(script, encoding="utf-8")
        self.nvidia_smi.chmod(0o755)


def _new(machine: Machine, seed: str) -> NodeState:
    gpus = [
        GpuState(uuid=f"GPU-{_uuid(seed, f'gpu/{index}')}", serial=_serial(seed, f"gpu/{index}"))
        for index in range(machine.gpu.count)
    ]
    dmi_uuid = _uuid(seed, "dmi")
    # EC2 gives the same value as serial number and UUID, and it begins with "ec2".
    dmi_uuid = f"ec2{dmi_uuid[3:]}"
    return NodeState(
        machine=machine, seed=seed, dmi_serial=dmi_uuid, dmi_uuid=dmi_uuid, boot_id="", booted_at=0.0, gpus=gpus
    )


def _uuid(seed: str, what: str) -> str:
    return str(uuid.UUID(bytes=hashlib.sha256(f"{seed}/{what}".encode()).digest()[:16], version=4))


def _serial(seed: str, what: str) -> str:
    number = int.from_bytes(hashlib.sha256(f"{seed}/{what}/serial".encode()).digest()[:8], "big")
    return f"165{number % 10**10:010d}"


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
